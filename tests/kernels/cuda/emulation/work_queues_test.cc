#include "kernels/cuda/emulation/work_queues.h"

#include <algorithm>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace pushpull::emulated_cuda {
namespace {

// Three queues of five pieces each. The third piece of b waits for the fourth of a. `order` becomes
// the names of the pieces in the order in which they ran.
class WorkQueuesTest : public testing::Test {
 protected:
  WorkQueuesTest() { Queue(); }

  void Queue() {
    order_.clear();
    queues_.clear();
    for (const char name : {'a', 'b', 'c'}) {
      queues_.push_back(std::make_shared<EmulatedWork>());
      for (int i = 0; i < 5; ++i) {
        if (name == 'b' && i == 2) queues_[1]->waiting.push_back({nullptr, queues_[0], 4});
        queues_.back()->waiting.push_back({[this, name, i] {
                                             order_ += name;
                                             order_ += static_cast<char>('0' + i);
                                           },
                                           nullptr});
      }
    }
  }
  void FinishB(Interleaving* interleaving) {
    interleaving->RunUntil(queues_, queues_[1].get(), queues_[1]->end());
  }
  size_t Place(const std::string& piece) const { return order_.find(piece); }

  Interleaving::Queues queues_;
  std::string order_;
};

TEST_F(WorkQueuesTest, RunUntilRunsWhatAQueueWaitsForAndNoMore) {
  RunUntil(queues_[1].get(), queues_[1]->end());
  EXPECT_EQ(order_, "b0b1a0a1a2a3b2b3b4");
}

TEST_F(WorkQueuesTest, EachOrderRespectsQueuesAndWaits) {
  std::set<std::string> orders;
  for (uint32_t seed = 0; seed < 200; ++seed) {
    Queue();
    Interleaving interleaving(seed);
    FinishB(&interleaving);
    for (const char name : {'a', 'b', 'c'}) {
      std::string pieces;
      for (size_t i = 0; i < order_.size(); i += 2) {
        if (order_[i] == name) pieces += order_[i + 1];
      }
      EXPECT_EQ(pieces, std::string("01234").substr(0, pieces.size()));
    }
    EXPECT_NE(Place("b4"), std::string::npos);
    EXPECT_LT(Place("a3"), Place("b2"));
    orders.insert(order_);
  }
  EXPECT_GT(orders.size(), 100u);
  // Extreme orders are among them.
  EXPECT_TRUE(std::any_of(orders.begin(), orders.end(), [](const std::string& order) {
    return order.find('c') == std::string::npos;
  }));
  EXPECT_TRUE(std::any_of(orders.begin(), orders.end(), [](const std::string& order) {
    return order.find("c4") < order.find("b0");
  }));
}

TEST_F(WorkQueuesTest, SomeSeedsKeepUpWithTheHostAndOthersAreLazy) {
  std::set<size_t> pieces;
  for (uint32_t seed = 0; seed < 50; ++seed) {
    Queue();
    Interleaving interleaving(seed);
    for (int i = 0; i < 15; ++i) interleaving.RunSome(queues_);
    pieces.insert(order_.size() / 2);
  }
  EXPECT_EQ(*pieces.begin(), 0u);
  EXPECT_EQ(*pieces.rbegin(), 15u);
  EXPECT_GT(pieces.size(), 5u);
}

TEST_F(WorkQueuesTest, ASeedGivesTheSameOrderAgain) {
  Interleaving first(3);
  FinishB(&first);
  const std::string order = order_;
  Queue();
  Interleaving second(3);
  FinishB(&second);
  EXPECT_EQ(order_, order);
}

TEST_F(WorkQueuesTest, QueuesThatWaitForEachOtherAreAnError) {
  queues_[0]->waiting.push_front({nullptr, queues_[1], 6});
  Interleaving interleaving(1);
  EXPECT_DEATH(FinishB(&interleaving), "streams wait for each other");
  queues_[0]->waiting.clear();  // the two queues own each other
}

}  // namespace
}  // namespace pushpull::emulated_cuda
