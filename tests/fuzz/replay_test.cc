// Runs every fuzz target over its seeds and several thousand fixed mutations of them, as a check
// without libFuzzer. A target that finds a problem aborts.
#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/fuzz/seeds.h"
#include "tests/fuzz/targets.h"

// CMakeLists.txt gives the function of each target a unique name.
#define PUSHPULL_DECLARE(name) extern "C" int name##_fuzz(const uint8_t* data, size_t size);
PUSHPULL_FUZZ_TARGETS(PUSHPULL_DECLARE)
#undef PUSHPULL_DECLARE

namespace pushpull {
namespace {

constexpr int kMutations = 5000;

struct Target {
  const char* name;
  int (*run)(const uint8_t* data, size_t size);
};

std::ostream& operator<<(std::ostream& out, const Target& target) { return out << target.name; }

const std::vector<Target>& Targets() {
#define PUSHPULL_ENTRY(name) {#name, name##_fuzz},
  static const std::vector<Target> targets = {PUSHPULL_FUZZ_TARGETS(PUSHPULL_ENTRY)};
#undef PUSHPULL_ENTRY
  return targets;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<std::string>* seeds) : seeds_(seeds) {}

  std::string Next() {
    std::string text = Pick();
    const size_t count = 1 + Below(3);
    for (size_t i = 0; i < count; ++i) Mutate(&text);
    return text;
  }

 private:
  size_t Below(size_t limit) { return limit == 0 ? 0 : random_() % limit; }
  const std::string& Pick() { return (*seeds_)[Below(seeds_->size())]; }

  void Mutate(std::string* text) {
    const size_t place = Below(text->size());
    switch (Below(6)) {
      case 0:
        if (!text->empty()) (*text)[place] ^= static_cast<char>(1 << Below(8));
        break;
      case 1:
        if (!text->empty()) (*text)[place] = static_cast<char>(Below(256));
        break;
      case 2:
        text->resize(place);
        break;
      case 3:
        text->erase(place, 1 + Below(16));
        break;
      case 4:  // repeats a piece of the text
        text->insert(place, text->substr(Below(text->size()), 1 + Below(16)));
        break;
      default: {  // continues with the end of another seed
        const std::string& other = Pick();
        text->resize(place);
        text->append(other.substr(Below(other.size())));
      }
    }
  }

  const std::vector<std::string>* const seeds_;
  std::mt19937 random_{1};
};

void RunTarget(const Target& target, const std::string& input) {
  ASSERT_EQ(target.run(reinterpret_cast<const uint8_t*>(input.data()), input.size()), 0);
}

class FuzzReplayTest : public ::testing::TestWithParam<Target> {};

TEST_P(FuzzReplayTest, AcceptsSeedsAndMutations) {
  const std::vector<std::string> seeds =
      MakeSeeds(GetParam().name, PUSHPULL_SOURCE_DIR "/tests/golden");
  ASSERT_FALSE(seeds.empty());
  RunTarget(GetParam(), "");
  for (const std::string& seed : seeds) RunTarget(GetParam(), seed);
  Mutator mutator(&seeds);
  for (int i = 0; i < kMutations; ++i) RunTarget(GetParam(), mutator.Next());
}

INSTANTIATE_TEST_SUITE_P(All, FuzzReplayTest, ::testing::ValuesIn(Targets()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pushpull
