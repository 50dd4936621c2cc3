#include "common/cluster/slurm_lists.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;

TEST(ExpandNodeListTest, ExpandsExamples) {
  EXPECT_THAT(*ExpandNodeList("localhost"), ElementsAre("localhost"));
  EXPECT_THAT(*ExpandNodeList("gnode[10,20-22]"),
              ElementsAre("gnode10", "gnode20", "gnode21", "gnode22"));
  EXPECT_THAT(*ExpandNodeList("n[08-11]"), ElementsAre("n08", "n09", "n10", "n11"));
  EXPECT_THAT(*ExpandNodeList("n[9-10]"), ElementsAre("n9", "n10"));
  EXPECT_THAT(*ExpandNodeList("n[007]"), ElementsAre("n007"));
  EXPECT_THAT(*ExpandNodeList("a[1-2],login-3,b[5].example.org"),
              ElementsAre("a1", "a2", "login-3", "b5.example.org"));
  EXPECT_THAT(*ExpandNodeList("r[1-2]n[01-02]-ib"),
              ElementsAre("r1n01-ib", "r1n02-ib", "r2n01-ib", "r2n02-ib"));
  EXPECT_THAT(*ExpandNodeList("r[1-2][3-4]"), ElementsAre("r13", "r14", "r23", "r24"));
}

TEST(ExpandNodeListTest, RefusesMalformedListsAndQuotesThem) {
  for (const char* bad : {"",
                          ",",
                          "a,",
                          ",a",
                          "a,,b",
                          "n[1",
                          "n1]",
                          "n[1]]",
                          "n[[1]]",
                          "n[]",
                          "n[1,]",
                          "n[,1]",
                          "n[3-1]",
                          "n[a-b]",
                          "n[1-]",
                          "n[-1]",
                          "n[1-2-3]",
                          "n[0-99999999]",
                          "n[1-9999999999]",
                          "n[1-50000][1-50000]",
                          "a[1-60000],b[1-60000]",
                          "n[1 2]"}) {
    const auto hosts = ExpandNodeList(bad);
    ASSERT_FALSE(hosts.ok()) << bad;
    EXPECT_TRUE(absl::IsInvalidArgument(hosts.status())) << hosts.status();
    EXPECT_TRUE(absl::StrContains(hosts.status().message(), absl::StrCat("\"", bad, "\"")))
        << hosts.status();
  }
}

// Compresses a list as Slurm prints it: neighbouring numbers of equal width become ranges, and each
// prefix has one bracket group.
class RandomList {
 public:
  explicit RandomList(uint32_t seed) : random_(seed) {
    const int groups = Draw(1, 4);
    for (int i = 0; i < groups; ++i) AddGroup(i);
  }
  std::string text() const { return absl::StrJoin(parts_, ","); }
  const std::vector<std::string>& hosts() const { return hosts_; }

 private:
  int Draw(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  void AddGroup(int group) {
    const std::string prefix =
        absl::StrCat(std::string(1, 'a' + group), Draw(0, 1) ? "-x" : "node");
    const std::string suffix = Draw(0, 3) == 0 ? "-ib0" : "";
    if (Draw(0, 3) == 0) {
      parts_.push_back(prefix + suffix);
      hosts_.push_back(prefix + suffix);
      return;
    }
    const int width = Draw(1, 5);
    std::vector<std::string> ranges;
    for (int first = Draw(0, 3), n = Draw(1, 4); n > 0; --n) {
      const int last = first + Draw(0, 12);
      const auto padded = [width](int number) { return absl::StrFormat("%0*d", width, number); };
      ranges.push_back(first == last ? padded(first)
                                     : absl::StrCat(padded(first), "-", padded(last)));
      for (int i = first; i <= last; ++i) {
        // A number that needs more digits than the padded width is printed in full.
        hosts_.push_back(absl::StrCat(prefix, padded(i), suffix));
      }
      first = last + Draw(2, 30);
    }
    parts_.push_back(absl::StrCat(prefix, "[", absl::StrJoin(ranges, ","), "]", suffix));
  }

  std::mt19937 random_;
  std::vector<std::string> parts_;
  std::vector<std::string> hosts_;
};

TEST(ExpandNodeListTest, ExpansionUndoesCompression) {
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    const RandomList list(seed);
    const auto hosts = ExpandNodeList(list.text());
    ASSERT_TRUE(hosts.ok()) << list.text() << ": " << hosts.status();
    ASSERT_EQ(*hosts, list.hosts()) << "seed " << seed << ": " << list.text();
  }
}

// Whatever is removed or inserted, the parser returns either hosts, at most as many as allowed, or
// an error.
TEST(ExpandNodeListTest, DamagedListsNeverCrash) {
  std::mt19937 random(7);
  constexpr char kBytes[] = "[],-019az(x) \t\n\xff";
  int accepted = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::string text = RandomList(seed).text();
    for (int edits = 1 + static_cast<int>(random() % 3); edits > 0; --edits) {
      const size_t at = random() % (text.size() + 1);
      if (random() % 2 == 0 && at < text.size()) {
        text.erase(at, 1);
      } else {
        text.insert(at, 1, kBytes[random() % (sizeof(kBytes) - 1)]);
      }
    }
    const auto hosts = ExpandNodeList(text);
    if (!hosts.ok()) continue;
    ++accepted;
    ASSERT_LE(hosts->size(), kMaxSlurmNodes);
    for (const std::string& host : *hosts) ASSERT_FALSE(host.empty()) << text;
  }
  EXPECT_GE(accepted, 100) << "harmless edits, such as another letter in a name, are accepted";
}

TEST(ExpandTasksPerNodeTest, ExpandsExamples) {
  EXPECT_THAT(*ExpandTasksPerNode("5"), ElementsAre(5));
  EXPECT_THAT(*ExpandTasksPerNode("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ExpandTasksPerNode("1,3(x1)"), ElementsAre(1, 3));
}

TEST(ExpandTasksPerNodeTest, RefusesMalformedCounts) {
  for (const char* bad : {"", "0", "2(x0)", "2(x", "2(x)", "2x3", "(x3)", "1,,2", "-1", "2(x3),",
                          "2(x200000)", "99999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExpandTasksPerNode(bad).status())) << bad;
  }
}

}  // namespace
}  // namespace pushpull
