// CRC-32C by the instructions that x86 (SSE4.2) and ARMv8 have for it.
//
// Tested by tests/common/base/crc32c_test.cc.
#include <array>
#include <cstring>

#include "common/base/crc32c_methods.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define PUSHPULL_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#define PUSHPULL_CRC_TARGET
#endif

namespace pushpull {

#ifdef PUSHPULL_CRC_TARGET

namespace {

#if defined(__x86_64__)
bool HasInstruction() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("sse4.2");
}
PUSHPULL_CRC_TARGET inline uint32_t Step64(uint32_t state, uint64_t word) {
  return static_cast<uint32_t>(_mm_crc32_u64(state, word));
}
PUSHPULL_CRC_TARGET inline uint32_t Step8(uint32_t state, unsigned char byte) {
  return _mm_crc32_u8(state, byte);
}
#else
bool HasInstruction() { return true; }  // the compiler was told so
inline uint32_t Step64(uint32_t state, uint64_t word) { return __crc32cd(state, word); }
inline uint32_t Step8(uint32_t state, unsigned char byte) { return __crc32cb(state, byte); }
#endif

uint64_t Load64(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

// Computes the CRC register after `zero_bytes` zero bytes. This is a linear function of the
// register, so one table for each byte of the register suffices.
class ZeroShift {
 public:
  explicit ZeroShift(size_t zero_bytes) {
    const std::vector<unsigned char> zeros(zero_bytes);
    std::array<uint32_t, 32> images;
    for (int bit = 0; bit < 32; ++bit) {
      images[bit] = Crc32cByTable().update(uint32_t{1} << bit, zeros.data(), zeros.size());
    }
    for (int byte = 0; byte < 4; ++byte) {
      for (int value = 0; value < 256; ++value) {
        uint32_t sum = 0;
        for (int bit = 0; bit < 8; ++bit) {
          if ((value >> bit & 1) != 0) sum ^= images[8 * byte + bit];
        }
        table_[byte][value] = sum;
      }
    }
  }

  uint32_t Apply(uint32_t state) const {
    return table_[0][state & 0xff] ^ table_[1][state >> 8 & 0xff] ^ table_[2][state >> 16 & 0xff] ^
           table_[3][state >> 24];
  }

 private:
  std::array<std::array<uint32_t, 256>, 4> table_;
};

// The instruction has a latency of three cycles and a throughput of one per cycle, so three
// independent streams keep it busy. Shifting the first two streams over the bytes after them joins
// the three results.
template <size_t kStreamBytes>
PUSHPULL_CRC_TARGET uint32_t UpdateInterleaved(uint32_t state, const unsigned char** data,
                                               size_t* size) {
  static const ZeroShift shift(kStreamBytes);
  const unsigned char* p = *data;
  size_t n = *size;
  for (; n >= 3 * kStreamBytes; p += 3 * kStreamBytes, n -= 3 * kStreamBytes) {
    uint32_t a = state;
    uint32_t b = 0;
    uint32_t c = 0;
    for (size_t i = 0; i < kStreamBytes; i += 8) {
      a = Step64(a, Load64(p + i));
      b = Step64(b, Load64(p + kStreamBytes + i));
      c = Step64(c, Load64(p + 2 * kStreamBytes + i));
    }
    state = shift.Apply(shift.Apply(a) ^ b) ^ c;
  }
  *data = p;
  *size = n;
  return state;
}

PUSHPULL_CRC_TARGET uint32_t Update(uint32_t state, const unsigned char* p, size_t n) {
  state = UpdateInterleaved<4096>(state, &p, &n);
  state = UpdateInterleaved<256>(state, &p, &n);
  for (; n >= 8; p += 8, n -= 8) state = Step64(state, Load64(p));
  for (; n > 0; ++p, --n) state = Step8(state, *p);
  return state;
}

uint32_t Copy(uint32_t state, const unsigned char* p, size_t n, unsigned char* to) {
  return CopyCrc32cByBlocks(Update, state, p, n, to);
}

}  // namespace

std::optional<Crc32cMethod> Crc32cByInstruction() {
  if (!HasInstruction()) return std::nullopt;
  return Crc32cMethod{"instruction", Update, Copy};
}

#else

std::optional<Crc32cMethod> Crc32cByInstruction() { return std::nullopt; }

#endif

}  // namespace pushpull
