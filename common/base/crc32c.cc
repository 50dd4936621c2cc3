#include "common/base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#ifdef __SSE4_2__
#include <immintrin.h>
#endif

namespace pushpull {
namespace {

// The Castagnoli polynomial with its bits reflected: bit 31 is the coefficient of x^0.
constexpr uint32_t kPolynomial = 0x82f63b78u;

// table[k][b] is the CRC register after byte b and then k zero bytes, starting from a zero
// register (slicing-by-8).
using SliceTable = std::array<std::array<uint32_t, 256>, 8>;

constexpr SliceTable MakeSliceTable() {
  SliceTable table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    table[0][byte] = crc;
  }
  for (int k = 1; k < 8; ++k) {
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t before = table[k - 1][byte];
      table[k][byte] = (before >> 8) ^ table[0][before & 0xff];
    }
  }
  return table;
}

constexpr SliceTable kSlices = MakeSliceTable();

uint64_t Load64(const unsigned char* p) {
  uint64_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}

uint32_t UpdateByte(uint32_t state, unsigned char byte) {
  return (state >> 8) ^ kSlices[0][(state ^ byte) & 0xff];
}

uint32_t UpdatePortable(uint32_t state, const unsigned char* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    const uint64_t word = Load64(p) ^ state;
    state = 0;
    for (int i = 0; i < 8; ++i) state ^= kSlices[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; n > 0; ++p, --n) state = UpdateByte(state, *p);
  return state;
}

#ifdef __SSE4_2__

// Computes the CRC register after `zero_bytes` zero bytes. This is a linear function of the
// register, so one table for each byte of the register suffices.
class ZeroShift {
 public:
  explicit ZeroShift(size_t zero_bytes) {
    std::array<uint32_t, 32> images;
    for (int bit = 0; bit < 32; ++bit) {
      uint32_t state = uint32_t{1} << bit;
      for (size_t i = 0; i < zero_bytes; ++i) state = UpdateByte(state, 0);
      images[bit] = state;
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

// The crc32 instruction has a latency of three cycles and a throughput of one per cycle, so three
// independent streams keep it busy. Shifting the first two streams over the bytes behind them joins
// the three results.
template <size_t kStreamBytes>
uint32_t UpdateInterleaved(uint32_t state, const unsigned char** data, size_t* size) {
  static const ZeroShift shift(kStreamBytes);
  const unsigned char* p = *data;
  size_t n = *size;
  for (; n >= 3 * kStreamBytes; p += 3 * kStreamBytes, n -= 3 * kStreamBytes) {
    uint64_t a = state;
    uint64_t b = 0;
    uint64_t c = 0;
    for (size_t i = 0; i < kStreamBytes; i += 8) {
      a = _mm_crc32_u64(a, Load64(p + i));
      b = _mm_crc32_u64(b, Load64(p + kStreamBytes + i));
      c = _mm_crc32_u64(c, Load64(p + 2 * kStreamBytes + i));
    }
    const uint32_t joined = shift.Apply(static_cast<uint32_t>(a)) ^ static_cast<uint32_t>(b);
    state = shift.Apply(joined) ^ static_cast<uint32_t>(c);
  }
  *data = p;
  *size = n;
  return state;
}

uint32_t Update(uint32_t state, const unsigned char* p, size_t n) {
  state = UpdateInterleaved<4096>(state, &p, &n);
  state = UpdateInterleaved<256>(state, &p, &n);
  uint64_t wide = state;
  for (; n >= 8; p += 8, n -= 8) wide = _mm_crc32_u64(wide, Load64(p));
  state = static_cast<uint32_t>(wide);
  for (; n > 0; ++p, --n) state = _mm_crc32_u8(state, *p);
  return state;
}

#else

uint32_t Update(uint32_t state, const unsigned char* p, size_t n) {
  return UpdatePortable(state, p, n);
}

#endif

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size_bytes) {
  return ~Update(~crc, static_cast<const unsigned char*>(data), size_bytes);
}

uint32_t CopyAndExtendCrc32c(uint32_t crc, const char* from, size_t size_bytes, char* to) {
  // Small enough that a block is still in the core's L2 cache when its checksum is computed.
  constexpr size_t kBlockBytes = 64 * 1024;
  for (size_t done = 0; done < size_bytes; done += kBlockBytes) {
    const size_t block_bytes = std::min(kBlockBytes, size_bytes - done);
    std::memcpy(to + done, from + done, block_bytes);
    crc = ExtendCrc32c(crc, to + done, block_bytes);
  }
  return crc;
}

uint32_t ExtendCrc32cPortable(uint32_t crc, const void* data, size_t size_bytes) {
  return ~UpdatePortable(~crc, static_cast<const unsigned char*>(data), size_bytes);
}

}  // namespace pushpull
