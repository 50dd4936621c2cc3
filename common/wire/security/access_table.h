// Which roles may call which methods over TLS. Methods that are not in the table are refused, so a
// new RPC needs a row here; tests/common/wire/security/access_table_test.cc fails until it has one.
// All functions are thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_TABLE_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_ACCESS_TABLE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

#include "common/wire/security/peer_identity.h"

namespace pushpull {

// A set of roles. Bit i stands for the PeerRole with the value i.
using RoleSet = uint8_t;

constexpr RoleSet Roles() { return 0; }
template <typename... More>
constexpr RoleSet Roles(PeerRole role, More... more) {
  return static_cast<RoleSet>((1u << static_cast<unsigned>(role)) | Roles(more...));
}

struct AccessRow {
  const char* path;  // value of HTTP/2's :path
  RoleSet roles;
};

namespace access_table_internal {
inline constexpr RoleSet kPs = Roles(PeerRole::kPs);
inline constexpr RoleSet kWorker = Roles(PeerRole::kWorker);
inline constexpr RoleSet kAdmin = Roles(PeerRole::kAdmin);
inline constexpr RoleSet kAll =
    Roles(PeerRole::kPs, PeerRole::kWorker, PeerRole::kEvaluator, PeerRole::kAdmin);
}  // namespace access_table_internal

inline constexpr AccessRow kAccessTable[] = {
    // What is trained and how it goes. The other ps tasks call GetJob at task 0.
    {"/ps.ParameterServer/GetJob", access_table_internal::kAll},
    {"/ps.ParameterServer/GetStatus", access_table_internal::kAll},
    // For clones. caller_rule.h checks that the worker_id in the message is the caller's.
    {"/ps.ParameterServer/Register", access_table_internal::kWorker},
    {"/ps.ParameterServer/Heartbeat", access_table_internal::kWorker},
    {"/ps.ParameterServer/Push", access_table_internal::kWorker},
    {"/ps.ParameterServer/Commit", access_table_internal::kWorker},
    {"/ps.ParameterServer/Pull", access_table_internal::kWorker},
    {"/ps.ParameterServer/OpenSharedMemory", access_table_internal::kWorker},
    // For operators.
    {"/ps.ParameterServer/Checkpoint", access_table_internal::kAdmin},
    // A ps task that receives SIGTERM calls Drain at task 0 to end the whole job.
    {"/ps.ParameterServer/Drain", Roles(PeerRole::kPs, PeerRole::kAdmin)},
    {"/ps.ParameterServer/Evict", access_table_internal::kAdmin},
    // From the coordinator to the shards. GetShardState is also called by --check_cluster, which
    // workers and operators run.
    {"/ps.ParameterServer/GetShardState",
     Roles(PeerRole::kPs, PeerRole::kWorker, PeerRole::kAdmin)},
    {"/ps.ParameterServer/Restore", access_table_internal::kPs},
    {"/ps.ParameterServer/MeasureNorm", access_table_internal::kPs},
    {"/ps.ParameterServer/Apply", access_table_internal::kPs},
    {"/ps.ParameterServer/Snapshot", access_table_internal::kPs},
    {"/ps.ParameterServer/EndTask", access_table_internal::kPs},

    {"/grpc.health.v1.Health/Check", access_table_internal::kAll},
    {"/grpc.health.v1.Health/Watch", access_table_internal::kAll},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
     access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetTopChannels", access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetServers", access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetServer", access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetServerSockets", access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetChannel", access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetSubchannel", access_table_internal::kAdmin},
    {"/grpc.channelz.v1.Channelz/GetSocket", access_table_internal::kAdmin},
};

// Empty for a method that is not in the table.
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
