// One chunk of a gradient as it came over the wire. It stays encoded from the transport to the
// apply pass, which decodes it while it reads (gradient_codec.h).
#ifndef PUSHPULL_COMMON_WIRE_ENCODED_CHUNK_H_
#define PUSHPULL_COMMON_WIRE_ENCODED_CHUNK_H_

#include "common/base/payload.h"
#include "protos/parameter_server.pb.h"

namespace pushpull {

// The number of elements is that of the chunk (sharding.h); the payload may lie at any address.
struct EncodedChunk {
  ps::GradientEncoding encoding = ps::FLOAT32;
  Payload payload;
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_ENCODED_CHUNK_H_
