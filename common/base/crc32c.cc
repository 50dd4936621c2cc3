#include "common/base/crc32c.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/crc32c_methods.h"

namespace pushpull {
namespace {

// table[k][b] is the CRC register after byte b and then k zero bytes, starting from a zero
// register (slicing-by-8).
using SliceTable = std::array<std::array<uint32_t, 256>, 8>;

constexpr SliceTable MakeSliceTable() {
  SliceTable table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kCrc32cPolynomial : 0);
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

uint32_t UpdateByTable(uint32_t state, const unsigned char* p, size_t n) {
  for (; n >= 8; p += 8, n -= 8) {
    uint64_t word = 0;
    for (int i = 0; i < 8; ++i) word |= uint64_t{p[i]} << (8 * i);
    word ^= state;
    state = 0;
    for (int i = 0; i < 8; ++i) state ^= kSlices[7 - i][(word >> (8 * i)) & 0xff];
  }
  for (; n > 0; ++p, --n) state = (state >> 8) ^ kSlices[0][(state ^ *p) & 0xff];
  return state;
}

uint32_t CopyByTable(uint32_t state, const unsigned char* p, size_t n, unsigned char* to) {
  return CopyCrc32cByBlocks(UpdateByTable, state, p, n, to);
}

const Crc32cMethod& Fastest() {
  static const Crc32cMethod method = AvailableCrc32cMethods().back();
  return method;
}

}  // namespace

uint32_t ExtendCrc32c(uint32_t crc, const void* data, size_t size_bytes) {
  return ~Fastest().update(~crc, static_cast<const unsigned char*>(data), size_bytes);
}

uint32_t CopyAndExtendCrc32c(uint32_t crc, const char* from, size_t size_bytes, char* to) {
  return ~Fastest().copy(~crc, reinterpret_cast<const unsigned char*>(from), size_bytes,
                         reinterpret_cast<unsigned char*>(to));
}

Crc32cMethod Crc32cByTable() { return {"table", UpdateByTable, CopyByTable}; }

std::vector<Crc32cMethod> AvailableCrc32cMethods() {
  std::vector<Crc32cMethod> methods = {Crc32cByTable()};
  if (const auto method = Crc32cByInstruction()) methods.push_back(*method);
  for (const Crc32cMethod& method : Crc32cByCarrylessMultiply()) methods.push_back(method);
  return methods;
}

uint32_t CopyCrc32cByBlocks(uint32_t (*update)(uint32_t, const unsigned char*, size_t),
                            uint32_t state, const unsigned char* p, size_t n, unsigned char* to) {
  // Small enough that a block is still in the core's L2 cache when its checksum is computed.
  constexpr size_t kBlockBytes = 64 * 1024;
  for (size_t done = 0; done < n; done += kBlockBytes) {
    const size_t block_bytes = std::min(kBlockBytes, n - done);
    std::memcpy(to + done, p + done, block_bytes);
    state = update(state, to + done, block_bytes);
  }
  return state;
}

}  // namespace pushpull
