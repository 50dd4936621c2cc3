#include "common/model/variable_entries.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

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
  const VariableSpec a = MakeVariable("a", {3});
  const VariableSpec b = MakeVariable("b", {4});
  const VariableSpec c = MakeVariable("c", {5});
  EXPECT_EQ(Difference({a, b, c}, {a, b, c}).first, "");
  EXPECT_EQ(Difference({a, b, c}, {a, MakeVariable("b", {8}), MakeVariable("c", {10})}),
            std::pair(std::string("b is [4] at the server and [8] at the clone"), b.name));
  EXPECT_EQ(Difference({a, b}, {a, c}),
            std::pair(std::string("variable 1 is b at the server and c at the clone"), c.name));
}

TEST(VariableDifferenceTest, NamesTheFirstVariableThatIsMissing) {
  const VariableSpec a = MakeVariable("a", {3});
  const VariableSpec b = MakeVariable("b", {4});
  const VariableSpec c = MakeVariable("c", {5});
  EXPECT_EQ(Difference({a, b, c}, {a}),
            std::pair(std::string("variable 1 is b at the server, the clone has only 1"), b.name));
  EXPECT_EQ(Difference({a}, {a, b, c}),
            std::pair(std::string("variable 1 is b at the clone, the server has only 1"), b.name));
}

// Returns the same for two declarations.
std::pair<std::string, std::string> DeclarationDifference(const std::vector<VariableSpec>& server,
                                                          const std::vector<VariableSpec>& worker) {
  std::string variable;
  std::string text = DescribeDeclarationDifference(Entries(server), Entries(worker), &variable);
  return {std::move(text), std::move(variable)};
}

TEST(DeclarationDifferenceTest, NamesTheFirstAttributeThatDiffers) {
  const VariableSpec a = MakeVariable("a", {3});
  const auto changed = [&](float VariableSpec::*attribute, float value) {
    VariableSpec b = MakeVariable("b", {4});
    b.*attribute = value;
    return DeclarationDifference({a, MakeVariable("b", {4})}, {a, b});
  };
  EXPECT_EQ(DeclarationDifference({a}, {a}).first, "");
  EXPECT_EQ(
      changed(&VariableSpec::l2_weight, 0.0001f),
      std::pair(std::string("b has l2_weight 0 at the server and 9.99999975e-05 at the clone"),
                std::string("b")));
  EXPECT_EQ(changed(&VariableSpec::learning_rate_multiplier, 0.5f).first,
            "b has learning_rate_multiplier 1 at the server and 0.5 at the clone");
  EXPECT_EQ(changed(&VariableSpec::moving_average_decay, 0.75f).first,
            "b has moving_average_decay 0 at the server and 0.75 at the clone");
  EXPECT_EQ(changed(&VariableSpec::gradient_multiplier, 2.0f).first, "") << "the server's own";
  VariableSpec frozen = a;
  frozen.frozen = true;
  EXPECT_EQ(DeclarationDifference({frozen}, {a}).first,
            "a has frozen true at the server and false at the clone");
  EXPECT_EQ(DeclarationDifference({a}, {MakeVariable("a", {4})}).first,
            "a is [3] at the server and [4] at the clone");
}

using EntryList = google::protobuf::RepeatedPtrField<ps::VariableEntry>;

EntryList ListOf(const VariableLayout& layout) {
  EntryList list;
  for (const ps::VariableEntry& entry : VariableEntries(layout)) *list.Add() = entry;
  return list;
}

TEST(LayoutOfEntriesTest, KeepsAllAttributes) {
  std::vector<VariableSpec> variables = {MakeVariable("a", {3}), MakeVariable("b", {4})};
  variables[0].shape = {};  // a scalar
  variables[0].l2_weight = 0.1f;
  variables[0].learning_rate_multiplier = 0.0f;
  variables[0].frozen = true;
  variables[0].gradient_multiplier = 3.0f;
  variables[1].kind = VariableKind::kMovingStatistic;
  variables[1].moving_average_decay = 0.997f;
  const VariableLayout layout = *VariableLayout::Create(variables);
  const auto back = LayoutOfEntries(ListOf(layout));
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->signature(), layout.signature());
  for (int64_t i = 0; i < 2; ++i) {
    EXPECT_EQ(back->variables()[i].l2_weight, variables[i].l2_weight);
    EXPECT_EQ(back->variables()[i].learning_rate_multiplier, variables[i].learning_rate_multiplier);
    EXPECT_EQ(back->variables()[i].gradient_multiplier, variables[i].gradient_multiplier);
    EXPECT_EQ(back->variables()[i].frozen, variables[i].frozen);
    EXPECT_EQ(back->variables()[i].moving_average_decay, variables[i].moving_average_decay);
  }
  EntryList bare = ListOf(layout);
  bare[0].clear_learning_rate_multiplier();
  EXPECT_EQ(LayoutOfEntries(bare)->variables()[0].learning_rate_multiplier, 1.0f)
      << "a language that does not know the field leaves it out";
}

// Changes the second of two good entries and expects a refusal that names it.
void ExpectRefusal(const std::function<void(ps::VariableEntry*)>& change, const char* message) {
  EntryList entries =
      ListOf(*VariableLayout::Create({MakeVariable("a", {3}), MakeVariable("b", {4})}));
  change(&entries[1]);
  const absl::Status status = LayoutOfEntries(entries).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(message));
}

TEST(LayoutOfEntriesTest, NamesTheVariableThatCannotBeDeclared) {
  ExpectRefusal([](auto* entry) { entry->set_name(""); }, "variable 1 has no name");
  ExpectRefusal([](auto* entry) { entry->set_name("a"); }, "variable a is declared twice");
  ExpectRefusal([](auto* entry) { entry->set_name("x\ny"); }, "\"x\\ny\" has a control character");
  ExpectRefusal([](auto* entry) { entry->set_name(std::string(513, 'n')); }, "a name of 513 bytes");
  ExpectRefusal([](auto* entry) { entry->set_shape(0, 0); }, "variable b has shape [0]");
  ExpectRefusal([](auto* entry) { entry->set_shape(0, -4); }, "variable b has shape [-4]");
  ExpectRefusal([](auto* entry) { entry->set_shape(0, std::numeric_limits<int64_t>::max()); },
                "variable b has shape [9223372036854775807], which are too many elements");
  ExpectRefusal([](auto* entry) { entry->mutable_shape()->Resize(65, 1); },
                "variable b has 65 dimensions");
  ExpectRefusal([](auto* entry) { entry->set_l2_weight(-1); }, "variable b has l2_weight -1");
  ExpectRefusal([](auto* entry) { entry->set_l2_weight(std::nanf("")); },
                "variable b has l2_weight");
  ExpectRefusal(
      [](auto* entry) {
        entry->set_learning_rate_multiplier(std::numeric_limits<float>::infinity());
      },
      "variable b has learning_rate_multiplier inf");
  ExpectRefusal([](auto* entry) { entry->set_gradient_multiplier(-2.0f); },
                "variable b has gradient_multiplier -2");
  ExpectRefusal([](auto* entry) { entry->set_moving_average_decay(1.5f); },
                "variable b has moving_average_decay 1.5");
  EXPECT_TRUE(absl::IsInvalidArgument(LayoutOfEntries({}).status())) << "no variables";
}

// The sum of the elements of these variables is 10 in 64 bits.
TEST(LayoutOfEntriesTest, NamesTheVariableWithWhichThereAreTooManyElements) {
  EntryList entries;
  for (int i = 0; i < 129; ++i) {
    ps::VariableEntry& entry = *entries.Add();
    entry.set_name("v" + std::to_string(i));
    entry.add_shape(i < 128 ? (int64_t{1} << 57) - 1 : 138);
  }
  const absl::Status status = LayoutOfEntries(entries).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      ::testing::HasSubstr("variable v0 has shape [144115188075855871], which are too many"));
  entries.Mutable(0)->set_shape(0, (int64_t{1} << 57) - 16);
  EXPECT_THAT(
      std::string(LayoutOfEntries(entries).status().message()),
      ::testing::HasSubstr("variable v1 has shape [144115188075855871], which are too many"));
}

TEST(LayoutOfEntriesTest, TheListHasToFitIntoAMessage) {
  EntryList entries;
  while (entries.size() < 2000) {
    ps::VariableEntry& entry = *entries.Add();
    entry.set_name(std::to_string(entries.size()) + std::string(400, 'n'));
    entry.add_shape(1);
  }
  const absl::Status status = LayoutOfEntries(entries).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("2000 variables"));
}

TEST(LayoutOfEntriesTest, TheNormsOfAllVariablesHaveToFitIntoAMessage) {
  EntryList entries;
  while (entries.size() <= kMaxEntries) entries.Add()->set_name(std::to_string(entries.size()));
  const absl::Status status = LayoutOfEntries(entries).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              ::testing::HasSubstr("32769 variables, allowed are 32768"));
  entries.RemoveLast();
  EXPECT_TRUE(LayoutOfEntries(entries).ok()) << LayoutOfEntries(entries).status();
}

}  // namespace
}  // namespace pushpull
