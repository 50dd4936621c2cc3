// Who may call what over TLS. Everything that is not in this table is refused, so a new RPC is
// refused to everybody until it has a row here (tests/common/rpc/security/access_table_test.cc
// fails until then).
#ifndef PUSHPULL_COMMON_RPC_SECURITY_ACCESS_TABLE_H_
#define PUSHPULL_COMMON_RPC_SECURITY_ACCESS_TABLE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

#include "common/rpc/security/peer_identity.h"

namespace pushpull {

using RoleSet = uint8_t;  // bit i: the PeerRole with the value i

constexpr RoleSet Roles() { return 0; }
template <typename... More>
constexpr RoleSet Roles(PeerRole role, More... more) {
  return static_cast<RoleSet>((1u << static_cast<unsigned>(role)) | Roles(more...));
}

struct AccessRow {
  const char* path;  // as HTTP/2's :path
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
    // What is trained here. Other ps tasks ask task 0 for it.
    {"/ps.ParameterServer/GetJob", access_table_internal::kAll},
    {"/ps.ParameterServer/GetStatus", access_table_internal::kAll},
    // Clones, each under its own worker_id (caller_rule.h).
    {"/ps.ParameterServer/Register", access_table_internal::kWorker},
    {"/ps.ParameterServer/Heartbeat", access_table_internal::kWorker},
    {"/ps.ParameterServer/Push", access_table_internal::kWorker},
    {"/ps.ParameterServer/Commit", access_table_internal::kWorker},
    {"/ps.ParameterServer/Pull", access_table_internal::kWorker},
    {"/ps.ParameterServer/OpenSharedMemory", access_table_internal::kWorker},
    // Operators.
    {"/ps.ParameterServer/Checkpoint", access_table_internal::kAdmin},
    // A task in a process of its own passes its SIGTERM on to the whole job.
    {"/ps.ParameterServer/Drain", Roles(PeerRole::kPs, PeerRole::kAdmin)},
    {"/ps.ParameterServer/Evict", access_table_internal::kAdmin},
    // Coordinator to shard. --check_cluster of workers and operators reads the state, too.
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

#endif  // PUSHPULL_COMMON_RPC_SECURITY_ACCESS_TABLE_H_
