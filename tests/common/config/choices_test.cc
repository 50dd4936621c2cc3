// The choices that a config offers: each is described in docs/USAGE.md, and each reader says what
// its data give and need.
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "gtest/gtest.h"

#include "common/config/model_types.h"
#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::OneofDescriptor;

const OneofDescriptor& Oneof(const google::protobuf::Descriptor& message, const char* name) {
  const OneofDescriptor* const oneof = message.FindOneofByName(name);
  CHECK(oneof != nullptr) << name;
  return *oneof;
}

class UsageTest : public testing::Test {
 protected:
  UsageTest() {
    std::stringstream text;
    text << std::ifstream(PUSHPULL_SOURCE_DIR "/docs/USAGE.md").rdbuf();
    usage_ = text.str();
  }
  void ExpectNamed(absl::string_view choice) {
    EXPECT_TRUE(absl::StrContains(usage_, absl::StrCat("`", choice, "`")))
        << "docs/USAGE.md has no `" << choice << "`";
  }
  // Expects the name of each field but those that are not built.
  void ExpectFieldsNamed(const OneofDescriptor& oneof) {
    for (int i = 0; i < oneof.field_count(); ++i) {
      const FieldDescriptor& field = *oneof.field(i);
      if (!field.options().HasExtension(config::unsupported)) ExpectNamed(field.name());
    }
  }

 private:
  std::string usage_;
};

TEST_F(UsageTest, NamesEachOptimizerReaderTypeAndActivation) {
  ExpectFieldsNamed(Oneof(*config::Optimizer::descriptor(), "optimizer"));
  ExpectFieldsNamed(Oneof(*config::InputReader::descriptor(), "input_reader"));
  for (const absl::string_view type : ClassifierTypeNames()) ExpectNamed(type);
  for (const absl::string_view type : SsdTypeNames()) ExpectNamed(type);
  const google::protobuf::EnumDescriptor& activations =
      *config::Hyperparams::Activation_descriptor();
  for (int i = 0; i < activations.value_count(); ++i) ExpectNamed(activations.value(i)->name());
}

TEST(ReaderOptionsTest, EachReaderSaysWhatItsDataGiveAndNeed) {
  const OneofDescriptor& readers = Oneof(*config::InputReader::descriptor(), "input_reader");
  for (int i = 0; i < readers.field_count(); ++i) {
    const FieldDescriptor& field = *readers.field(i);
    if (field.options().HasExtension(config::unsupported)) continue;
    EXPECT_TRUE(field.options().HasExtension(config::annotation)) << field.name();
    EXPECT_TRUE(field.options().HasExtension(config::label_map)) << field.name();
  }
}

}  // namespace
}  // namespace pushpull
