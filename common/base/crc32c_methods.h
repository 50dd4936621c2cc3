// The ways of computing a CRC-32C that crc32c.cc chooses from. Its other users are tests.
//
// All of them work on the CRC register, which is the complement of the checksum, and give the same
// result. Thread-safe.
#ifndef PUSHPULL_COMMON_BASE_CRC32C_METHODS_H_
#define PUSHPULL_COMMON_BASE_CRC32C_METHODS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace pushpull {

struct Crc32cMethod {
  const char* name;
  // Returns the register after n more bytes at p.
  uint32_t (*update)(uint32_t state, const unsigned char* p, size_t n);
  // Copies n bytes to `to`, and returns the register after the bytes that it has written there,
  // even if another process changes those at p meanwhile.
  uint32_t (*copy)(uint32_t state, const unsigned char* p, size_t n, unsigned char* to);
};

// Returns the methods that this processor can use, the fastest one last.
std::vector<Crc32cMethod> AvailableCrc32cMethods();

// The Castagnoli polynomial without x^32, with its bits reflected: bit 31 is the coefficient of
// x^0.
inline constexpr uint32_t kCrc32cPolynomial = 0x82f63b78u;

// Each of these belongs to one source file. No value: the processor, or the build, lacks the
// instructions.
Crc32cMethod Crc32cByTable();                           // crc32c.cc
std::optional<Crc32cMethod> Crc32cByInstruction();      // crc32c_instruction.cc
std::vector<Crc32cMethod> Crc32cByCarrylessMultiply();  // crc32c_fold.cc

// Copies block by block, and computes the register with `update` while a block is in the cache.
uint32_t CopyCrc32cByBlocks(uint32_t (*update)(uint32_t, const unsigned char*, size_t),
                            uint32_t state, const unsigned char* p, size_t n, unsigned char* to);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_CRC32C_METHODS_H_
