#include "tests/fuzz/seeds.h"

#include <cstdint>
#include <initializer_list>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/crc32c.h"
#include "common/base/file_system.h"
#include "common/base/record_io.h"
#include "common/checkpoint/safetensors.h"
#include "protos/example.pb.h"
#include "protos/tensor_bundle.pb.h"
#include "ps_server/warm_start/sorted_table.h"
#include "tests/testkit/table_builder.h"
#include "worker/data/example_codec.h"
#include "worker/data/image_encoder.h"

namespace pushpull {
namespace {

using Seeds = std::vector<std::string>;

std::string Bytes(std::initializer_list<int> bytes) {
  std::string text;
  for (const int byte : bytes) text.push_back(static_cast<char>(byte));
  return text;
}

std::string Golden(const std::string& golden, absl::string_view name) {
  PosixFileSystem files;
  absl::StatusOr<std::string> bytes = ReadWholeFile(files, JoinPath(golden, name));
  CHECK(bytes.ok()) << bytes.status();
  return *std::move(bytes);
}

// Puts each of the mode bytes before each text.
Seeds WithModes(std::initializer_list<int> modes, const Seeds& texts) {
  Seeds seeds;
  for (const int mode : modes) {
    for (const std::string& text : texts) seeds.push_back(Bytes({mode}) + text);
  }
  return seeds;
}

Image SmallImage(int height, int width, int channels) {
  Image image{height, width, channels, {}};
  for (int i = 0; i < height * width * channels; ++i) {
    image.pixels.push_back(static_cast<uint8_t>(7 * i));
  }
  return image;
}

std::string Png(const Image& image) {
  std::string bytes;
  CHECK(EncodePng(image, &bytes).ok());
  return bytes;
}

std::string Jpeg(const Image& image) {
  std::string bytes;
  CHECK(EncodeJpeg(image, 75, &bytes).ok());
  return bytes;
}

Seeds ImageSeeds() {
  return {Png(SmallImage(1, 1, 1)),   Png(SmallImage(5, 3, 3)), Jpeg(SmallImage(1, 1, 1)),
          Jpeg(SmallImage(9, 10, 3)), "P5 2 2 255\nabcd",       "P5\n# a comment\n1 1 100\n\x10"};
}

std::string EncodedExample(absl::string_view image, bool has_label, int num_objects) {
  AnnotatedImage annotated;
  annotated.filename = "a.jpg";
  annotated.height = 2;
  annotated.width = 2;
  if (has_label) {
    annotated.label = 1;
    annotated.label_text = "dog";
  }
  for (int i = 0; i < num_objects; ++i) {
    AnnotatedObject object;
    object.box = Box{0.1f * static_cast<float>(i), 0.25f, 0.9f, 1.0f, i % 2};
    object.text = i % 2 == 0 ? "cat" : "dog";
    annotated.objects.push_back(object);
  }
  absl::StatusOr<std::string> bytes = EncodeExample(annotated, image);
  CHECK(bytes.ok()) << bytes.status();
  return *std::move(bytes);
}

Seeds ExampleSeeds() {
  const std::string png = Png(SmallImage(1, 1, 1));
  Seeds examples = {EncodedExample(png, false, 0), EncodedExample(png, true, 0),
                    EncodedExample(Jpeg(SmallImage(2, 2, 3)), false, 2)};
  // Uses a PGM image, whose pixels have no checksum that mutations would break, and adds weights.
  tensorflow::Example example;
  CHECK(example.ParseFromString(EncodedExample(png, false, 3)));
  auto& features = *example.mutable_features()->mutable_feature();
  features["image/encoded"].mutable_bytes_list()->set_value(0, "P5 1 1 255\nx");
  for (const float weight : {1.0f, 0.5f, 0.0f}) {
    features["image/object/weight"].mutable_float_list()->add_value(weight);
  }
  examples.push_back(example.SerializeAsString());
  return WithModes({0, 1, 2, 0x80, 0x81, 0x82}, examples);
}

Seeds LabelMapSeeds() {
  return {"item { id: 1 name: \"cat\" }\nitem { id: 2 name: \"dog\" display_name: \"Dog\" }\n",
          "item {\n  name: 'a'\n  id: 90\n}\nitem: < id: 3, display_name: \"\\303\\244\\n\" >",
          "# none\n", "item { id: 0 name: \"background\" }",
          "item { id: 1 name: \"a\" } item { id: 1 name: \"b\" }"};
}

Seeds VocSeeds() {
  const std::string size = "<size><width>20</width><height>10</height><depth>3</depth></size>";
  const std::string object =
      "<object><name>cat</name><difficult>1</difficult><bndbox><xmin>1</xmin><ymin>2</ymin>"
      "<xmax>19.5</xmax><ymax>10</ymax></bndbox></object>";
  const std::string xml =
      absl::StrCat("<annotation><filename>a.jpg</filename>", size, object, object, "</annotation>");
  std::string utf16 = "\xff\xfe";
  for (const char c : xml) utf16 += {c, '\0'};
  // This text is longer in UTF-8 than in UTF-16, and its element is never closed.
  std::string grows = Bytes({0xff, 0xfe, '<', 0, 'a', 0, '>', 0});
  for (int i = 0; i < 64; ++i) grows += "\x05\x4e";
  return {xml, absl::StrCat("<?xml version=\"1.0\"?>\n<annotation>", size, "</annotation>"),
          "<annotation>\n<size></annotation>", utf16, grows};
}

Seeds CocoSeeds() {
  return {R"({"info": {"year": 2017}, "images": [{"id": 7, "file_name": "a.jpg", "width": 20,
"height": 10}], "annotations": [{"id": 1, "image_id": 7, "category_id": 3, "bbox": [1, 2.5, 3, 4],
"area": 12.0, "iscrowd": 1, "segmentation": [[1, 2, 3]]}], "categories": [{"id": 3, "name": "cat",
"supercategory": "animal"}]})",
          R"({"categories":[{"id":0,"name":"a"},{"id":-5,"name":"b"}],"annotations":[],
"images":[{"id":1.0,"file_name":"b","width":1,"height":1}]})",
          R"({"images": []})", R"([[{"images": 1e99}]])"};
}

std::string BundleEntry(int dtype, std::initializer_list<int64_t> shape, int64_t size) {
  tensorflow::BundleEntryProto entry;
  entry.set_dtype(dtype);
  for (const int64_t dimension : shape) entry.mutable_shape()->add_dim()->set_size(dimension);
  entry.set_size(size);
  entry.set_crc32c(MaskCrc32c(Crc32c(std::string(size, '\x01'))));
  return entry.SerializeAsString();
}

Seeds BundleSeeds(const std::string& golden) {
  const auto entry = [](absl::string_view key, const std::string& value) {
    return absl::StrCat(Bytes({static_cast<int>(key.size()), static_cast<int>(value.size())}), key,
                        value);
  };
  const std::string entries = absl::StrCat(entry("conv/weights", BundleEntry(1, {2, 3}, 24)),
                                           entry("global_step", BundleEntry(9, {}, 8)),
                                           entry("scalar", BundleEntry(1, {}, 4)));
  // Fields: a 2 x 3 tensor of 24 bytes, and an int64 without a shape.
  const std::string zeros(8, '\0');
  const auto number = [&](int value) { return Bytes({value}) + zeros.substr(1); };
  const std::string fields = absl::StrCat(Bytes({1, 2}), number(2), number(3), zeros, number(24),
                                          Bytes({0, 0, 9, 0}), zeros, number(8), Bytes({0, 0}));
  Seeds seeds = WithModes({1}, {entries, ""});
  seeds.push_back(Bytes({2}) + fields);
  seeds.push_back(Bytes({0}) + Golden(golden, "tf_bundle/model.ckpt.index"));
  return seeds;
}

Seeds TableSeeds(const std::string& golden) {
  const std::string block = EncodeTableBlock({{"", "\x08\x01"}, {"a", "first"}, {"ab", "second"}});
  Seeds seeds = {Bytes({0}) + WrapTableBlock(block), Bytes({1}) + block};
  // An index with one handle: offset 0, half of the block.
  const std::string index = EncodeTableBlock({{"~", Bytes({0, static_cast<int>(block.size())})}});
  const int part = static_cast<int>(block.size() * 256 / (block.size() + index.size())) + 1;
  seeds.push_back(Bytes({2, part}) + block + index);
  // Entries with shared key prefixes.
  seeds.push_back(Bytes({1, 0, 2, 1, 'a', 'b', 'x', 2, 1, 0, 'c', 0, 0, 0, 0, 1, 0, 0, 0}));
  seeds.push_back(Bytes({0}) + Golden(golden, "tf_bundle/model.ckpt.index"));
  return seeds;
}

Seeds SafetensorsSeeds() {
  SafetensorsHeader header;
  header.metadata = {{"format", "pt"}};
  header.tensors = {{"conv/weights", "F32", {2, 3}}, {"bias", "BF16", {4}}, {"empty", "I64", {0}}};
  const absl::StatusOr<std::string> prefix = EncodeSafetensorsHeader(&header);
  CHECK(prefix.ok()) << prefix.status();
  return {Bytes({0}) + *prefix + std::string(32, '\x01'), Bytes({32}) + prefix->substr(8),
          Bytes({4}) + R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}})",
          Bytes({1}) + R"({"\u00e4":{"data_offsets":[0,1],"shape":[1,1],"dtype":"BOOL"}})"};
}

Seeds ManifestSeeds(const std::string& golden) {
  const std::string manifest = Golden(golden, "checkpoint/ckpt-00012000/MANIFEST.json");
  return {Bytes({0}) + manifest, Bytes({1}) + manifest.substr(manifest.find('\n') + 1)};
}

Seeds IdxSeeds() {
  const std::string labels = Bytes({0, 0, 8, 1, 0, 0, 0, 2, 3, 9});
  const std::string grey = Bytes({0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4});
  const std::string colour =
      Bytes({0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6});
  const std::string stored_gzip =  // of no bytes
      Bytes({0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 1, 0, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0});
  return WithModes({static_cast<int>(labels.size())},
                   {labels + grey, labels + colour, labels + stored_gzip});
}

Seeds RecordSeeds() {
  std::string two, empty;
  AppendRecord("first", &two);
  AppendRecord("second record", &two);
  AppendRecord("", &empty);
  return {two, empty, "\x1f\x8b\x08 gzip"};
}

Seeds ConfigSeeds(const std::string& golden) {
  const std::string pipelines = JoinPath(golden, "../../deploy/pipelines");
  std::string unknown, deep, lists;
  for (int i = 0; i < 150; ++i) {
    unknown += "x: 1 ";
    deep += "model {";
    lists += "y: [";
  }
  return {Golden(pipelines, "mobilenet_v2_mnist.config"),
          Golden(pipelines, "ssd_mobilenet_v2_digits.config"),
          "model { faster_rcnn { nested < a: [ 1, {b: 2} ] > } }",
          "train_config { batch_sise: 3 optimizer: < adam_optimizer { } > num_steps: 'x\\\n{{' }",
          "train_config { freeze_variables: \"(a|b{2,3})*[c-e]\" num_steps: 1 num_steps: 2 }",
          unknown,
          deep,
          lists};
}

}  // namespace

std::vector<std::string> MakeSeeds(absl::string_view target, const std::string& golden) {
  if (target == "coco_annotations") return CocoSeeds();
  if (target == "example_codec") return ExampleSeeds();
  if (target == "idx") return IdxSeeds();
  if (target == "image_codec") return ImageSeeds();
  if (target == "label_map") return LabelMapSeeds();
  if (target == "manifest") return ManifestSeeds(golden);
  if (target == "pipeline_config") return ConfigSeeds(golden);
  if (target == "record_io") return RecordSeeds();
  if (target == "safetensors") return SafetensorsSeeds();
  if (target == "sorted_table") return TableSeeds(golden);
  if (target == "tensor_bundle") return BundleSeeds(golden);
  if (target == "voc_annotations") return VocSeeds();
  return {};
}

}  // namespace pushpull
