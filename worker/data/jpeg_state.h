// The error handler of libjpeg, which encoder and decoder share. It leaves with longjmp, so no
// frame that longjmp leaves may hold objects with destructors. Tested by
// tests/worker/data/jpeg_codec_test.cc.
#ifndef PUSHPULL_WORKER_DATA_JPEG_STATE_H_
#define PUSHPULL_WORKER_DATA_JPEG_STATE_H_

#include <csetjmp>
#include <cstdio>

// jpeglib.h uses FILE and size_t without including them, so it comes after <cstdio>. The message
// codes in jerror.h depend on macros of jpeglib.h: in the other order they would have other values
// than in the library.
// clang-format off
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

namespace pushpull {

struct JpegState {
  jpeg_error_mgr manager;  // must be first: JpegFail casts its address to JpegState
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];  // of the error
  char warning[JMSG_LENGTH_MAX];  // the first one about lost image data; empty if there is none
};

// Keeps the message and leaves to `jump`. For jpeg_error_mgr::error_exit.
[[noreturn]] inline void JpegFail(j_common_ptr info) {
  auto* state = reinterpret_cast<JpegState*>(info->err);
  (*info->err->format_message)(info, state->message);
  std::longjmp(state->jump, 1);
}

// For jpeg_error_mgr::output_message: nothing is printed.
inline void JpegSilence(j_common_ptr) {}

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_JPEG_STATE_H_
