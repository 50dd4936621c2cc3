// Identifies a version of the variables among all versions of a run.
#ifndef PUSHPULL_PS_SERVER_CORE_VERSION_ID_H_
#define PUSHPULL_PS_SERVER_CORE_VERSION_ID_H_

#include <compare>
#include <cstdint>

namespace pushpull {

// A version number alone is not unique: a job that goes back makes the same numbers again, from
// other contributions. Together with an epoch it is, because an epoch continues from one version
// and makes each later number once. `epoch` is an epoch in whose history the version lies: the
// epoch that made it, or the one in which a checkpoint of it was published; 0 for the initial
// variables.
struct VersionId {
  // The order of the fields matters: a greater id belongs to a history that is as new or newer.
  uint64_t epoch = 0;
  uint64_t version = 0;
  // clang-tidy 14 takes the comparison with 0 inside for a null pointer.
  // NOLINTNEXTLINE(modernize-use-nullptr)
  friend auto operator<=>(const VersionId&, const VersionId&) = default;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_VERSION_ID_H_
