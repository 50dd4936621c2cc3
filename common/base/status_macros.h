// Macros that return early on an error, for functions that return absl::Status or absl::StatusOr.
#ifndef PUSHPULL_COMMON_BASE_STATUS_MACROS_H_
#define PUSHPULL_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns the absl::Status `expr` from the calling function if it is not OK.
#define PP_RETURN_IF_ERROR(expr)             \
  do {                                       \
    absl::Status pp_status_ = (expr);        \
    if (!pp_status_.ok()) return pp_status_; \
  } while (false)

#define PP_CONCAT_INNER_(a, b) a##b
#define PP_CONCAT_(a, b) PP_CONCAT_INNER_(a, b)

// Assigns the value of the absl::StatusOr `expr` to `lhs`, which may be a declaration, or returns
// its error from the calling function. Expands to several statements, so it needs braces in the
// body of an if or a loop.
#define PP_ASSIGN_OR_RETURN(lhs, expr) \
  PP_ASSIGN_OR_RETURN_IMPL_(PP_CONCAT_(pp_statusor_, __LINE__), lhs, expr)

#define PP_ASSIGN_OR_RETURN_IMPL_(statusor, lhs, expr)     \
  auto statusor = (expr);                                  \
  if (!statusor.ok()) return std::move(statusor).status(); \
  lhs = std::move(statusor).value()

#endif  // PUSHPULL_COMMON_BASE_STATUS_MACROS_H_
