// Tested by tests/worker/data/idx_source_test.cc.
#include "worker/data/maybe_gzip_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr size_t kInputBytes = 1 << 16;
constexpr int kGzipOnly = 16;  // added to windowBits, makes zlib accept gzip streams only

}  // namespace

absl::StatusOr<std::unique_ptr<MaybeGzipFile>> MaybeGzipFile::Open(const std::string& path) {
  PP_ASSIGN_OR_RETURN(FileToRead file, OpenToRead(path));
  auto result = std::unique_ptr<MaybeGzipFile>(new MaybeGzipFile(path, std::move(file)));
  PP_RETURN_IF_ERROR(result->Refill());
  const z_stream& stream = result->stream_;
  if (stream.avail_in >= 2 && stream.next_in[0] == 0x1f && stream.next_in[1] == 0x8b) {
    result->is_gzip_ = true;
    result->in_member_ = true;
    CHECK_EQ(inflateInit2(&result->stream_, MAX_WBITS + kGzipOnly), Z_OK) << "out of memory";
  }
  return result;
}

MaybeGzipFile::~MaybeGzipFile() {
  if (is_gzip_) inflateEnd(&stream_);
}

absl::Status MaybeGzipFile::Refill() {
  consumed_ += static_cast<int64_t>(input_.size());
  input_.resize(kInputBytes);
  const size_t got = std::fread(input_.data(), 1, input_.size(), file_.get());
  if (got < input_.size() && std::ferror(file_.get())) return ReadError(path_, errno);
  input_.resize(got);
  stream_.next_in = input_.data();
  stream_.avail_in = static_cast<uInt>(got);
  return absl::OkStatus();
}

absl::Status MaybeGzipFile::GzipError(const char* what) const {
  const int64_t offset = consumed_ + static_cast<int64_t>(input_.size()) - stream_.avail_in;
  return absl::DataLossError(absl::StrCat(path_, ": bad gzip at byte ", offset, ": ", what,
                                          "; make or download the file again"));
}

absl::StatusOr<size_t> MaybeGzipFile::Read(uint8_t* out, size_t size) {
  size_t done = 0;
  while (done < size) {
    if (stream_.avail_in == 0) PP_RETURN_IF_ERROR(Refill());
    const bool at_end = stream_.avail_in == 0;
    if (!is_gzip_) {
      if (at_end) break;
      const size_t count = std::min<size_t>(size - done, stream_.avail_in);
      std::memcpy(out + done, stream_.next_in, count);
      stream_.next_in += count;
      stream_.avail_in -= static_cast<uInt>(count);
      done += count;
      continue;
    }
    if (!in_member_) {
      if (at_end) break;
      if (stream_.next_in[0] != 0x1f) return GzipError("bytes left over after the end");
      inflateReset(&stream_);
      in_member_ = true;
    }
    const size_t room = std::min<size_t>(size - done, size_t{1} << 30);
    stream_.next_out = out + done;
    stream_.avail_out = static_cast<uInt>(room);
    // Called even without input: zlib may still hold decompressed bytes.
    const int code = inflate(&stream_, Z_NO_FLUSH);
    done += room - stream_.avail_out;
    if (code == Z_STREAM_END) {
      in_member_ = false;
    } else if (code == Z_BUF_ERROR && at_end) {
      return GzipError("the file is truncated");
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return GzipError(stream_.msg != nullptr ? stream_.msg : "not a gzip stream");
    }
  }
  return done;
}

}  // namespace pushpull
