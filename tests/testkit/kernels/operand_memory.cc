#include "tests/testkit/kernels/operand_memory.h"

#include "glog/logging.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr int64_t kGuardBytes = 256;
constexpr char kPoison = static_cast<char>(0xff);

}  // namespace

OperandMemory HostOperands() {
  return {HostMemory(),
          [](void* to, const void* from, int64_t bytes) { std::memcpy(to, from, bytes); }};
}

GuardedBlock::GuardedBlock(const OperandMemory& memory, int64_t bytes)
    : memory_(memory), bytes_(bytes) {
  auto block = memory.source->Allocate(bytes + 2 * kGuardBytes);
  CHECK(block.ok()) << block.status();
  block_ = *std::move(block);
  const std::vector<char> poison(bytes + 2 * kGuardBytes, kPoison);
  memory_.source->Write(block_->data(), poison.data(), poison.size());
}

void* GuardedBlock::data() const { return static_cast<char*>(block_->data()) + kGuardBytes; }

void GuardedBlock::Write(const void* from) { memory_.source->Write(data(), from, bytes_); }

void GuardedBlock::CheckGuards(const std::string& label) const { (void)Read(label); }

std::vector<char> GuardedBlock::Read(const std::string& label) const {
  std::vector<char> all(bytes_ + 2 * kGuardBytes);
  memory_.read(all.data(), block_->data(), all.size());
  for (int64_t i = 0; i < kGuardBytes; ++i) {
    if (all[kGuardBytes - 1 - i] != kPoison) {
      ADD_FAILURE() << label << ": written " << i + 1 << " bytes before its start";
      break;
    }
    if (all[kGuardBytes + bytes_ + i] != kPoison) {
      ADD_FAILURE() << label << ": written " << i << " bytes past its end";
      break;
    }
  }
  return {all.begin() + kGuardBytes, all.end() - kGuardBytes};
}

}  // namespace pushpull
