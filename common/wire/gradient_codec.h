// The encodings of gradients on the wire; some of them serve weights too. Each codec has a separate
// file in codecs/ and a row in gradient_codec.cc; a new one also needs a value of
// ps::GradientEncoding. The encoding of a chunk is stated in its header, never guessed from its
// length.
#ifndef PUSHPULL_COMMON_WIRE_GRADIENT_CODEC_H_
#define PUSHPULL_COMMON_WIRE_GRADIENT_CODEC_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Immutable and thread-safe. A chunk is encoded as a whole. In the functions below, `bytes` has
// EncodedBytes(elements) bytes at any address, where `elements` is the size of the chunk.
class GradientCodec {
 public:
  virtual ~GradientCodec() = default;

  virtual ps::GradientEncoding encoding() const = 0;
  // Returns the value of `worker --gradient_precision` that chooses the codec.
  virtual absl::string_view flag() const = 0;
  // Returns whether the encoded bytes are the floats themselves, so that no copy is needed.
  virtual bool is_float32() const { return false; }
  // Returns whether encoding loses so much that a clone has to add the loss to its next gradient
  // (worker/client/error_feedback.h). Weights are not sent in such an encoding: nothing would make
  // up for the loss.
  virtual bool needs_error_feedback() const { return false; }

  virtual int64_t EncodedBytes(int64_t elements) const = 0;
  virtual void Encode(absl::Span<const float> chunk, char* bytes) const = 0;
  // Writes elements [begin, begin + count) of the chunk to `out`.
  virtual void Decode(const char* bytes, int64_t elements, int64_t begin, int64_t count,
                      float* out) const = 0;
  // Returns the index of the first element that is not finite, `elements` if all are.
  virtual int64_t FindNonFinite(const char* bytes, int64_t elements) const = 0;
};

// Return null for an encoding, or a flag, that this build does not know.
const GradientCodec* FindGradientCodec(ps::GradientEncoding encoding);
const GradientCodec* FindGradientCodec(absl::string_view flag);
// Returns the flags of all codecs, separated by ", ".
std::string GradientCodecFlags();

// The same for weights, which the server sends without error feedback.
// INVALID_ARGUMENT: this build does not know the encoding, or does not send weights in it.
absl::StatusOr<const GradientCodec*> FindWeightCodec(ps::GradientEncoding encoding);
const GradientCodec* FindWeightCodec(absl::string_view flag);
std::string WeightCodecFlags();

// The codecs, each in the file of its name in codecs/.
const GradientCodec& Float32Codec();
const GradientCodec& Bfloat16Codec();
const GradientCodec& Int8Codec();

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRADIENT_CODEC_H_
