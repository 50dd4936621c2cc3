// A config that was written for TensorFlow's Object Detection API names no field that is unknown
// here, and a field that it sets to its default asks for nothing.
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

#include "common/config/schema_marks.h"
#include "protos/label_map.pb.h"
#include "protos/pipeline.pb.h"

namespace pushpull {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;

// A line of upstream_fields.txt.
struct Fact {
  std::string owner;  // a message, or an enum if the type is "value"
  std::string name;
  int number = 0;
  std::string type;           // "float", "repeated float", "message", "enum", "value", ...
  std::string default_value;  // as in a config; empty for repeated fields, messages and values
};

std::vector<Fact> ReadFacts() {
  const std::string path = PUSHPULL_SOURCE_DIR "/tests/common/config/upstream_fields.txt";
  std::ifstream file(path);
  std::vector<Fact> facts;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    Fact fact;
    std::string path_of_field;
    std::istringstream words(line);
    words >> path_of_field >> fact.number >> fact.type;
    if (fact.type == "repeated") {
      std::string element;
      words >> element;
      absl::StrAppend(&fact.type, " ", element);
    }
    words >> fact.default_value;
    const size_t dot = path_of_field.rfind('.');
    CHECK(words.eof() && dot != std::string::npos) << line;
    fact.owner = path_of_field.substr(0, dot);
    fact.name = path_of_field.substr(dot + 1);
    facts.push_back(fact);
  }
  CHECK(!facts.empty()) << "cannot read " << path;
  return facts;
}

// Returns the message or enum of our schemas with this name, or null.
template <typename Find>
auto FindInPackages(const std::string& name, const Find& find) {
  // The call makes the linker keep the label map's schema.
  const std::string label_maps = tensorflow::StringIntLabelMap::descriptor()->file()->package();
  const auto* const found = find("pushpull.config." + name);
  return found != nullptr ? found : find(label_maps + "." + name);
}

const Descriptor* FindMessage(const std::string& name) {
  return FindInPackages(name, [](const std::string& full_name) {
    return DescriptorPool::generated_pool()->FindMessageTypeByName(full_name);
  });
}

const FieldDescriptor* FindField(const Fact& fact) {
  const Descriptor* const message = FindMessage(fact.owner);
  return message == nullptr ? nullptr : message->FindFieldByName(fact.name);
}

std::string TypeOf(const FieldDescriptor& field) {
  return absl::StrCat(field.is_repeated() ? "repeated " : "", field.type_name());
}

// Returns whether a field of type `ours` reads each text that a field of type `theirs` reads.
bool ReadsAllOf(const std::string& ours, const std::string& theirs) {
  return ours == theirs || (ours == "float" && theirs == "int32");
}

bool HasDefault(const Fact& fact) { return !fact.default_value.empty(); }

std::unique_ptr<Message> NewMessage(const Fact& fact) {
  return std::unique_ptr<Message>(google::protobuf::MessageFactory::generated_factory()
                                      ->GetPrototype(FindMessage(fact.owner))
                                      ->New());
}

std::string ValueOf(const Message& message, const FieldDescriptor& field) {
  std::string text;
  TextFormat::PrintFieldValueToString(message, &field, -1, &text);
  return text;
}

TEST(UpstreamFieldsTest, HaveTheSameNameNumberAndType) {
  int fields = 0;
  for (const Fact& fact : ReadFacts()) {
    if (fact.type == "value") continue;
    ++fields;
    const FieldDescriptor* const field = FindField(fact);
    if (field == nullptr) {
      ADD_FAILURE() << "our " << fact.owner << " has no field " << fact.name << ": add it, with "
                    << "(unsupported) or (no_effect) if it is not built";
      continue;
    }
    EXPECT_EQ(field->number(), fact.number) << field->full_name();
    EXPECT_TRUE(ReadsAllOf(TypeOf(*field), fact.type))
        << field->full_name() << ": expected " << fact.type << ", got " << TypeOf(*field);
  }
  EXPECT_GE(fields, 400);
}

TEST(UpstreamFieldsTest, EnumsHaveTheSameValues) {
  int values = 0;
  for (const Fact& fact : ReadFacts()) {
    if (fact.type != "value") continue;
    ++values;
    const EnumDescriptor* const type = FindInPackages(fact.owner, [](const std::string& full_name) {
      return DescriptorPool::generated_pool()->FindEnumTypeByName(full_name);
    });
    ASSERT_NE(type, nullptr) << fact.owner;
    const auto* const value = type->FindValueByName(fact.name);
    ASSERT_NE(value, nullptr) << fact.owner << "." << fact.name;
    EXPECT_EQ(value->number(), fact.number) << fact.owner << "." << fact.name;
  }
  EXPECT_GE(values, 30);
}

// The text of each field at its default is one that a config may have. It changes no value, and its
// mark makes no problem of it.
TEST(UpstreamFieldsTest, MayBeSetToTheirDefaults) {
  for (const Fact& fact : ReadFacts()) {
    const FieldDescriptor* const field = FindField(fact);
    if (field == nullptr || !HasDefault(fact)) continue;  // the first test reports an absent field
    const std::unique_ptr<Message> message = NewMessage(fact);
    const std::string unset = ValueOf(*message, *field);
    const std::string text = absl::StrCat(fact.name, ": ", fact.default_value);
    ASSERT_TRUE(TextFormat::ParseFromString(text, message.get())) << fact.owner << " " << text;
    EXPECT_EQ(ValueOf(*message, *field), unset)
        << field->full_name() << " has another default than TensorFlow's";
    FieldChecker checker;
    std::vector<std::string> warnings;
    CheckSchemaMarks(*message, &checker, &warnings);
    for (const ConfigProblem& problem : checker.problems()) {
      ADD_FAILURE() << fact.owner << ": " << ToString(problem);
    }
  }
}

// Each field that is in our schema alone has a number of ours, or stands in this list.
TEST(UpstreamFieldsTest, FieldsOfOursHaveNumbersFrom1001) {
  // Fields that only older versions of TensorFlow's schema have.
  const std::set<std::string> older = {"FeaturePyramidNetworks.use_native_resize_op",
                                       "SsdFeatureExtractor.batch_norm_trainable",
                                       "WeightSharedConvolutionalBoxPredictor.mask_head"};
  std::set<std::string> known = older, owners;
  for (const Fact& fact : ReadFacts()) {
    known.insert(absl::StrCat(fact.owner, ".", fact.name));
    if (fact.type != "value") owners.insert(fact.owner);
  }
  for (const std::string& owner : owners) {
    const Descriptor* const message = FindMessage(owner);
    ASSERT_NE(message, nullptr) << owner;
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor& field = *message->field(i);
      if (known.count(absl::StrCat(owner, ".", field.name())) > 0) continue;
      EXPECT_GE(field.number(), 1001) << field.full_name();
    }
  }
}

}  // namespace
}  // namespace pushpull
