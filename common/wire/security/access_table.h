// Says which roles may call which methods over TLS. A method that has no row is refused. The rows
// of the ParameterServer come from the table of methods (methods.h). All functions are thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_TABLE_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_TABLE_H_

#include "absl/strings/string_view.h"

#include "common/wire/methods.h"
#include "common/wire/role_set.h"

namespace pushpull {

struct AccessRow {
  const char* path;  // value of HTTP/2's :path
  RoleSet roles;
};

inline constexpr AccessRow kAccessTable[] = {
#define PUSHPULL_ROW(Name, Request, Reply, callers, task, proof) \
  {"/ps.ParameterServer/" #Name, callers},
    PUSHPULL_ALL_METHODS(PUSHPULL_ROW)
#undef PUSHPULL_ROW
        {"/grpc.health.v1.Health/Check", kAllRoles},
    {"/grpc.health.v1.Health/Watch", kAllRoles},
};

// Returns an empty set for a method that is not in the table.
constexpr RoleSet RolesThatMayCall(absl::string_view path) {
  for (const AccessRow& row : kAccessTable) {
    if (path == row.path) return row.roles;
  }
  return 0;
}

constexpr bool MayCall(PeerRole role, absl::string_view path) {
  return (RolesThatMayCall(path) & Roles(role)) != 0;
}

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_TABLE_H_
