// Test memory for any operators, on the host or on a GPU: inputs are copied there between guards,
// and outputs are poisoned before and read back after.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_OPERAND_MEMORY_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_OPERAND_MEMORY_H_

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/memory.h"
#include "kernels/operands.h"

namespace pushpull {

struct OperandMemory {
  MemorySource* source = nullptr;
  // Copies from that memory once all work on it is done.
  std::function<void(void* to, const void* from, int64_t bytes)> read;
};

OperandMemory HostOperands();

// A block between guards. The guards are NaN in every type, and so is the block until it is
// written. Aligned to 256 bytes.
class GuardedBlock {
 public:
  GuardedBlock(const OperandMemory& memory, int64_t bytes);

  void* data() const;
  void Write(const void* from);
  // Fails the test and names the block if a guard was overwritten.
  void CheckGuards(const std::string& label) const;
  std::vector<char> Read(const std::string& label) const;

 private:
  const OperandMemory memory_;
  const int64_t bytes_;
  std::unique_ptr<Memory> block_;
};

template <typename T>
class Operand {
 public:
  Operand(const OperandMemory& memory, int64_t count)
      : count_(count), block_(memory, count * static_cast<int64_t>(sizeof(T))) {}
  Operand(const OperandMemory& memory, const std::vector<T>& values)
      : Operand(memory, static_cast<int64_t>(values.size())) {
    block_.Write(values.data());
  }

  T* data() const { return static_cast<T*>(block_.data()); }
  std::vector<T> Read(const std::string& label) const {
    const std::vector<char> bytes = block_.Read(label);
    std::vector<T> values(count_);
    if (count_ > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

 private:
  const int64_t count_;
  GuardedBlock block_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_OPERAND_MEMORY_H_
