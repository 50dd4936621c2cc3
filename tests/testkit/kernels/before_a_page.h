// Numbers in memory where reading or writing past the last one ends the program.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_BEFORE_A_PAGE_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_BEFORE_A_PAGE_H_

#include <sys/mman.h>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {

// A copy of numbers whose last one is followed by a page that can be neither read nor written.
template <typename T>
class BeforeAPage {
 public:
  explicit BeforeAPage(const std::vector<T>& values)
      : bytes_((values.size() * sizeof(T) + kPage - 1) / kPage * kPage + kPage),
        pages_(static_cast<char*>(
            mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))),
        data_(reinterpret_cast<T*>(pages_ + bytes_ - kPage) - values.size()) {
    if (pages_ == MAP_FAILED) std::abort();
    std::copy(values.begin(), values.end(), data_);
    EXPECT_EQ(mprotect(pages_ + bytes_ - kPage, kPage, PROT_NONE), 0);
  }
  ~BeforeAPage() { munmap(pages_, bytes_); }
  BeforeAPage(const BeforeAPage&) = delete;
  BeforeAPage& operator=(const BeforeAPage&) = delete;
  T* data() { return data_; }

 private:
  static constexpr size_t kPage = size_t{64} << 10;  // the largest page of ARM64's Linux
  const size_t bytes_;
  char* const pages_;
  T* const data_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_BEFORE_A_PAGE_H_
