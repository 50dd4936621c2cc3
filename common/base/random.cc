#include "common/base/random.h"

#include <cmath>
#include <numbers>

namespace pushpull {

std::array<uint32_t, 4> Philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key) {
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = kMultiplier0 * counter[0];
    const uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

uint64_t StableHash(absl::string_view name) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3;
  }
  return hash;
}

CounterRandom::CounterRandom(uint64_t seed, uint64_t stream)
    : key_{static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)},
      counter_{0, 0, static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)} {}

uint32_t CounterRandom::NextUint32() {
  if (used_ == 4) {
    block_ = Philox4x32(counter_, key_);
    if (++counter_[0] == 0) ++counter_[1];
    used_ = 0;
  }
  return block_[used_++];
}

uint64_t CounterRandom::NextUint64() {
  const uint64_t low = NextUint32();
  return low | (static_cast<uint64_t>(NextUint32()) << 32);
}

float CounterRandom::NextFloat() {
  return static_cast<float>(NextUint32() >> 8) * (1.0f / 16777216.0f);
}

uint64_t CounterRandom::NextBelow(uint64_t bound) {
  // Lemire's multiply-shift without rejection: the bias is at most bound / 2^64.
  return static_cast<uint64_t>((static_cast<unsigned __int128>(NextUint64()) * bound) >> 64);
}

double CounterRandom::NextNormal() {
  const double u = (static_cast<double>(NextUint32()) + 1.0) / 4294967297.0;
  const double v = static_cast<double>(NextUint32()) / 4294967296.0;
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

}  // namespace pushpull
