// What the tests of the coordinator and of a shard have in common.
#ifndef PUSHPULL_TESTS_PS_SERVER_CORE_CORE_TEST_UTIL_H_
#define PUSHPULL_TESTS_PS_SERVER_CORE_CORE_TEST_UTIL_H_

#include "absl/status/status.h"

#include "common/wire/error_detail.h"

namespace pushpull {

inline constexpr char kRun[] = "0123456789abcdef";

inline ps::ErrorDetail::Kind KindOf(const absl::Status& status) {
  return GetErrorDetail(status).kind();
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_CORE_CORE_TEST_UTIL_H_
