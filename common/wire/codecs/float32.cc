// Tested by tests/common/wire/gradient_codec_test.cc.
// float32: the floats as they lie in memory, little endian.
#include <algorithm>
#include <cstring>

#include "common/wire/codecs/non_finite.h"
#include "common/wire/gradient_codec.h"

namespace pushpull {
namespace {

class Float32 final : public GradientCodec {
 public:
  ps::GradientEncoding encoding() const override { return ps::FLOAT32; }
  absl::string_view flag() const override { return "fp32"; }
  bool is_float32() const override { return true; }
  int64_t EncodedBytes(int64_t elements) const override { return elements * kBytes; }
  void Encode(absl::Span<const float> chunk, char* bytes) const override {
    // Not memcpy, which must not be called with the null pointer of an empty chunk.
    std::copy_n(reinterpret_cast<const char*>(chunk.data()), EncodedBytes(chunk.size()), bytes);
  }
  void Decode(const char* bytes, int64_t /*elements*/, int64_t begin, int64_t count,
              float* out) const override {
    std::memcpy(out, bytes + begin * kBytes, count * kBytes);
  }
  int64_t FindNonFinite(const char* bytes, int64_t elements) const override {
    return FindNonFiniteElement<uint32_t>(bytes, elements);
  }

 private:
  static constexpr int64_t kBytes = sizeof(float);
};

}  // namespace

const GradientCodec& Float32Codec() {
  static const auto* const codec = new Float32();
  return *codec;
}

}  // namespace pushpull
