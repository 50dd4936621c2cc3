// What tells a version of the variables from all others of a run.
#ifndef PUSHPULL_PS_SERVER_CORE_VERSION_ID_H_
#define PUSHPULL_PS_SERVER_CORE_VERSION_ID_H_

#include <compare>
#include <cstdint>

namespace pushpull {

// The number alone does not identify a version: a job that goes back makes the same numbers again,
// from other contributions. The epoch does: an epoch goes on from one version and makes each later
// number once. So `epoch` is any epoch in whose history the version lies: the one in which it was
// made, or in which a checkpoint of it was published; 0 for the initial variables.
struct VersionId {
  // In this order: an id that is greater belongs to a history that is as new or newer.
  uint64_t epoch = 0;
  uint64_t version = 0;
  // clang-tidy 14 takes the comparison with 0 inside for a null pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const VersionId&, const VersionId&) = default;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_VERSION_ID_H_
