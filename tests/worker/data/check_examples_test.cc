#include "worker/data/check_examples.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "tests/testkit/warning_sink.h"
#include "tests/worker/data/varied_source.h"
#include "worker/data/image_problems.h"
#include "worker/data/sampled_source.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::HasSubstr;

absl::Status Check(const ImageSource& source) {
  ThreadPool pool(3);
  return CheckExamples(source, "the name", &pool, NeverStopped,
                       [&](int64_t index, Example* example) { return source.Get(index, example); });
}

TEST(CheckExamplesTest, AnErrorMayPassOnlyIfAllMay) {
  const VariedSource source(40);
  for (const bool all_pass : {true, false}) {
    ThreadPool pool(3);
    const absl::Status status = CheckExamples(
        source, "the name", &pool, NeverStopped, [&](int64_t index, Example*) -> absl::Status {
          if (index == 38 && !all_pass) return absl::DataLossError("38 is damaged");
          if (index < 20) return MarkPassing(absl::InvalidArgumentError("the disk is away"));
          return absl::OkStatus();
        });
    EXPECT_EQ(IsPassing(status), all_pass) << status;
    EXPECT_EQ(absl::IsDataLoss(status), !all_pass) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(all_pass ? "the name: 20 of 40 images" : "21 of 40 images"),
                      HasSubstr("the disk is away"), HasSubstr(all_pass ? "10 more" : "11 more")));
  }
}

TEST(CheckExamplesTest, RefusesADataSetWithoutTheBoxesThatItNeeds) {
  VariedSource source(4);
  source.boxes_place = "the key box";
  EXPECT_TRUE(Check(source).ok());
  source.change = [](Example* example) { example->boxes.clear(); };
  const absl::Status status = Check(source);
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("the name: no image has a box"), HasSubstr("expected the key box")));
  source.boxes_place = "";
  EXPECT_TRUE(Check(source).ok()) << "a classifier needs no boxes";
}

TEST(CheckExamplesTest, NamesTheFirstDamagedImagesThatDecode) {
  VariedSource source(40);
  source.change = [](Example* example) { example->image.damage = "d.jpg: damaged"; };
  {
    const WarningSink sink;
    EXPECT_TRUE(Check(source).ok());
    ASSERT_EQ(sink.warnings().size(), 1u);
    EXPECT_EQ(sink.Count("the name: 40 of 40 images are damaged"), 1);
    EXPECT_EQ(sink.Count("\n  d.jpg: damaged"), 1);
    EXPECT_EQ(sink.Count("and 30 more; make_records --check lists all"), 1);
  }
  source.change = nullptr;
  const WarningSink sink;
  EXPECT_TRUE(Check(source).ok());
  EXPECT_EQ(sink.warnings().size(), 0u);
}

TEST(ImageProblemsTest, NamesThoseOfTheLowestIndicesInAnyOrder) {
  for (const bool rising : {true, false}) {
    ImageProblems damaged;
    for (int i = 0; i < 11; ++i) {
      const int index = rising ? i : 10 - i;
      damaged.Add(index, absl::StrCat("image ", index));
      damaged.Add(index + 11, "");
    }
    const WarningSink sink;
    damaged.LogDamage("the name", 30);
    std::string names;
    for (int i = 0; i < 10; ++i) absl::StrAppend(&names, "\n  image ", i);
    EXPECT_EQ(sink.Count(absl::StrCat("the name: 11 of 30 images are damaged and are used as they "
                                      "decode:",
                                      names, "\n  and 1 more")),
              1);
  }
}

TEST(ImageProblemsTest, TenAreAllNamed) {
  ImageProblems damaged;
  for (int i = 0; i < 10; ++i) damaged.Add(i, absl::StrCat("image ", i));
  const WarningSink sink;
  damaged.LogDamage("the name", 30);
  EXPECT_EQ(sink.Count("\n  image 9"), 1);
  EXPECT_EQ(sink.Count(" more"), 0);
}

// Every fourth example of VariedSource, from the first on, has no box.
TEST(CheckExamplesTest, CountsOnlyTheExamplesThatAreUsed) {
  for (const int n : {1, 4}) {
    auto source = std::make_unique<VariedSource>(40);
    source->boxes_place = "the key box";
    EXPECT_EQ(Check(SampledSource(std::move(source), n)).ok(), n == 1);
  }
}

}  // namespace
}  // namespace pushpull
