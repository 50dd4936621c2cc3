// What the next version will probably be made of: a guess that costs work where it is wrong, and
// nothing else. Not thread-safe.
//
// Synchronous: of the slots that made the version before, weighed as there. Asynchronous: of the
// slot whose next chunk comes first, weighed as the last time; only with one task, as another's
// shard may not hold the newest version yet and this one is about to give up the one before.
//
// Not with clipping by norm, which has to see the whole gradient first; not before a version has
// been applied (synchronous), or one of the slot's contributions (asynchronous).
#ifndef PUSHPULL_PS_SERVER_CORE_EXPECTED_CONTRIBUTIONS_H_
#define PUSHPULL_PS_SERVER_CORE_EXPECTED_CONTRIBUTIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "protos/parameter_server.pb.h"

namespace pushpull {

class ExpectedContributions {
 public:
  ExpectedContributions(bool sync, uint32_t tasks) : sync_(sync), tasks_(tasks) {}

  void Forget();
  void NoteApplied(const ps::ApplyRequest& request);

  struct Expected {
    uint32_t slot = 0;
    uint64_t samples = 0;
  };
  // Of the version after the newest one, now that a chunk of `slot` has come. In slot order; empty:
  // nothing is expected, or something else.
  std::vector<Expected> AfterChunkOf(uint32_t slot);

 private:
  const bool sync_;
  const uint32_t tasks_;
  std::map<uint32_t, uint64_t> samples_;  // by slot
  std::optional<uint32_t> first_;         // asynchronous: whose chunk came first
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_EXPECTED_CONTRIBUTIONS_H_
