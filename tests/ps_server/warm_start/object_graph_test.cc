#include "ps_server/warm_start/object_graph.h"

#include <cstring>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/crc32c.h"
#include "protos/tensor_bundle.pb.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

// A tensor as a data file holds it, and its checksum in the index.
struct StringTensor {
  std::string bytes;
  uint32_t crc32c = 0;
};

std::string FourBytes(uint32_t value) {
  std::string bytes(sizeof(value), '\0');
  std::memcpy(bytes.data(), &value, sizeof(value));
  return bytes;
}

// `text` is shorter than 128 bytes, so that its length is one byte.
StringTensor Encode(const std::string& text) {
  EXPECT_LT(text.size(), 128u);
  const std::string length = FourBytes(static_cast<uint32_t>(text.size()));
  const std::string length_crc = FourBytes(MaskCrc32c(Crc32c(length.data(), length.size())));
  const std::string checked = length + length_crc + text;
  return {std::string(1, static_cast<char>(text.size())) + length_crc + text,
          MaskCrc32c(Crc32c(checked.data(), checked.size()))};
}

StringTensor EncodeGraph() {
  tensorflow::TrackableObjectGraph graph;
  graph.add_nodes();  // an object without variables
  auto* kernel = graph.add_nodes()->add_attributes();
  kernel->set_full_name("Conv1/kernel");
  kernel->set_checkpoint_key("model/layer-1/kernel/.ATTRIBUTES/VARIABLE_VALUE");
  graph.add_nodes()->add_attributes()->set_checkpoint_key("save_counter");
  return Encode(graph.SerializeAsString());
}

TEST(ObjectGraphTest, VariablesWithANameAreListedByTheirKeys) {
  const StringTensor tensor = EncodeGraph();
  const auto names = ReadObjectGraph(tensor.bytes, tensor.crc32c, "data");
  ASSERT_TRUE(names.ok()) << names.status();
  EXPECT_THAT(*names,
              ElementsAre(Pair("model/layer-1/kernel/.ATTRIBUTES/VARIABLE_VALUE", "Conv1/kernel")));
}

TEST(ObjectGraphTest, EveryFlippedBitAndEveryLengthIsRefused) {
  const StringTensor tensor = EncodeGraph();
  for (size_t bit = 0; bit < 8 * tensor.bytes.size(); ++bit) {
    std::string bytes = tensor.bytes;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
    const auto names = ReadObjectGraph(bytes, tensor.crc32c, "model.data-00000-of-00001");
    ASSERT_EQ(names.status().code(), absl::StatusCode::kDataLoss) << "bit " << bit;
    EXPECT_THAT(names.status().message(), HasSubstr("model.data-00000-of-00001: the tensor "
                                                    "_CHECKPOINTABLE_OBJECT_GRAPH "));
  }
  for (size_t length = 0; length < tensor.bytes.size(); ++length) {
    const auto names = ReadObjectGraph(tensor.bytes.substr(0, length), tensor.crc32c, "data");
    EXPECT_EQ(names.status().code(), absl::StatusCode::kDataLoss) << "length " << length;
  }
  EXPECT_FALSE(ReadObjectGraph(tensor.bytes + "x", tensor.crc32c, "data").ok());
  EXPECT_FALSE(ReadObjectGraph(tensor.bytes, tensor.crc32c ^ 1, "data").ok());
}

TEST(ObjectGraphTest, AStringThatIsNoGraphIsRefused) {
  const StringTensor tensor = Encode("\xff\xff\xff");
  const auto names = ReadObjectGraph(tensor.bytes, tensor.crc32c, "data");
  EXPECT_THAT(names.status().message(), HasSubstr("is malformed"));
}

}  // namespace
}  // namespace pushpull
