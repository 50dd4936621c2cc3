// A test fixture for one part of the coordinator without the others.
#ifndef PUSHPULL_TESTS_PS_SERVER_CORE_PART_DRIVER_H_
#define PUSHPULL_TESTS_PS_SERVER_CORE_PART_DRIVER_H_

#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "ps_server/core/coordinator_job.h"
#include "ps_server/core/coordinator_options.h"

namespace pushpull {

// Removes the actions of one type and returns them.
template <typename Action>
std::vector<Action> TakeFrom(CoordinatorActions* actions) {
  std::vector<Action> taken;
  for (const CoordinatorAction& action : *actions) {
    if (const auto* found = std::get_if<Action>(&action)) taken.push_back(*found);
  }
  std::erase_if(*actions, [](const auto& a) { return std::holds_alternative<Action>(a); });
  return taken;
}

// A job of two replicas in epoch 7. The test handles each Followup in place of the Coordinator.
class PartTest : public testing::Test {
 protected:
  PartTest() {
    options_.num_replicas = 2;
    options_.limits.batch_size = 30;
    options_.layout_signature = "layout";
    job_.now = absl::Seconds(100);
    job_.epoch = 7;
  }

  template <typename Action>
  std::vector<Action> Take() {
    return TakeFrom<Action>(&actions_);
  }

  CoordinatorOptions options_;
  JobState job_;
  CoordinatorActions actions_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_CORE_PART_DRIVER_H_
