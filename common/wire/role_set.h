// The roles that a certificate can give its holder, and sets of them.
#ifndef PUSHPULL_COMMON_WIRE_ROLE_SET_H_
#define PUSHPULL_COMMON_WIRE_ROLE_SET_H_

#include <array>
#include <cstdint>

namespace pushpull {

enum class PeerRole : uint8_t { kPs, kWorker, kEvaluator, kAdmin };
inline constexpr std::array<PeerRole, 4> kPeerRoles = {PeerRole::kPs, PeerRole::kWorker,
                                                       PeerRole::kEvaluator, PeerRole::kAdmin};

// Bit i stands for the PeerRole with the value i.
using RoleSet = uint8_t;

constexpr RoleSet Roles() { return 0; }
template <typename... More>
constexpr RoleSet Roles(PeerRole role, More... more) {
  return static_cast<RoleSet>((1u << static_cast<unsigned>(role)) | Roles(more...));
}

inline constexpr RoleSet kTasks = Roles(PeerRole::kPs);
inline constexpr RoleSet kWorkers = Roles(PeerRole::kWorker);
inline constexpr RoleSet kAdmins = Roles(PeerRole::kAdmin);
inline constexpr RoleSet kTasksAndAdmins = kTasks | kAdmins;
inline constexpr RoleSet kAllButEvaluators = kTasks | kWorkers | kAdmins;
inline constexpr RoleSet kAllRoles = kAllButEvaluators | Roles(PeerRole::kEvaluator);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_ROLE_SET_H_
