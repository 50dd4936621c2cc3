#include "common/model/variable_entries.h"

#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

VariableSpec Variable(const char* name, int64_t elements) {
  VariableSpec variable;
  variable.name = name;
  variable.shape = {elements};
  return variable;
}

std::vector<ps::VariableEntry> Entries(const std::vector<VariableSpec>& variables) {
  return VariableEntries(*VariableLayout::Create(variables));
}

// Returns the description of the difference and the name of the variable in it.
std::pair<std::string, std::string> Difference(const std::vector<VariableSpec>& server,
                                               const std::vector<VariableSpec>& worker) {
  std::string variable;
  std::string text = DescribeVariableDifference(Entries(server), Entries(worker), &variable);
  return {std::move(text), std::move(variable)};
}

TEST(VariableDifferenceTest, NamesTheFirstVariableThatDiffers) {
  const VariableSpec a = Variable("a", 3);
  const VariableSpec b = Variable("b", 4);
  const VariableSpec c = Variable("c", 5);
  EXPECT_EQ(Difference({a, b, c}, {a, b, c}).first, "");
  EXPECT_EQ(Difference({a, b, c}, {a, Variable("b", 8), Variable("c", 10)}),
            std::pair(std::string("b is [4] at the server and [8] at the worker"), b.name));
  EXPECT_EQ(Difference({a, b}, {a, c}),
            std::pair(std::string("variable 1 is b at the server and c at the worker"), c.name));
}

TEST(VariableDifferenceTest, NamesTheFirstVariableThatIsMissing) {
  const VariableSpec a = Variable("a", 3);
  const VariableSpec b = Variable("b", 4);
  const VariableSpec c = Variable("c", 5);
  EXPECT_EQ(Difference({a, b, c}, {a}),
            std::pair(std::string("variable 1 is b at the server, the worker has only 1"), b.name));
  EXPECT_EQ(Difference({a}, {a, b, c}),
            std::pair(std::string("variable 1 is b at the worker, the server has only 1"), b.name));
}

}  // namespace
}  // namespace pushpull
