// The first byte chooses what examples must have and whether there is a label map. The rest is a
// tf.Example.
#include <cmath>
#include <string>
#include <vector>

#include "google/protobuf/stubs/logging.h"

#include "tests/fuzz/fuzz_input.h"
#include "worker/data/example_codec.h"
#include "worker/data/image_encoder.h"

namespace pushpull {
namespace {

constexpr int kNumClasses = 3;
constexpr size_t kSmallImageBytes = 4096;

// Boxes and image must be the same after writing and reading.
void CheckRoundTrip(const Example& example) {
  AnnotatedImage annotated;
  annotated.filename = "again";
  annotated.height = example.image.height;
  annotated.width = example.image.width;
  for (const Box& box : example.boxes) {
    AnnotatedObject object;
    object.box = box;
    annotated.objects.push_back(object);
  }
  std::string png;
  CHECK(EncodePng(example.image, &png).ok());
  const absl::StatusOr<std::string> bytes = EncodeExample(annotated, png);
  CHECK(bytes.ok()) << bytes.status();
  ExampleDecoding decoding;
  decoding.num_classes = kNumClasses;
  Example again;
  BoxIssues issues;
  const absl::Status status = DecodeExample(*bytes, "again", decoding, &again, &issues);
  CHECK(status.ok()) << status;
  CHECK(issues.left_out.empty()) << issues.left_out[0];
  CHECK(issues.clipped.empty()) << issues.clipped[0];
  CHECK(again.image.pixels == example.image.pixels);
  CHECK_EQ(again.boxes.size(), example.boxes.size());
  for (size_t i = 0; i < again.boxes.size(); ++i) {
    const Box& a = again.boxes[i];
    const Box& b = example.boxes[i];
    CHECK(a.ymin == b.ymin && a.xmin == b.xmin && a.ymax == b.ymax && a.xmax == b.xmax);
    CHECK(a.label == b.label && a.difficult == b.difficult && a.is_crowd == b.is_crowd);
  }
}

void Run(absl::string_view input) {
  static const absl::StatusOr<LabelMap> label_map = LabelMap::FromNames({"cat", "dog"}, "fuzz");
  google::protobuf::SetLogHandler(nullptr);  // the handler would print each bad string
  const uint8_t mode = TakeByte(&input);
  ExampleDecoding decoding;
  decoding.annotation = mode % 3 == 0   ? Annotation::kBoxes
                        : mode % 3 == 1 ? Annotation::kImageLabel
                                        : Annotation::kEither;
  decoding.num_classes = kNumClasses;
  if ((mode & 0x80) != 0) decoding.label_map = &*label_map;
  Example example;
  BoxIssues issues;
  const absl::Status status = DecodeExample(input, "fuzz", decoding, &example, &issues);
  if (!status.ok()) {
    CHECK(absl::IsDataLoss(status) || absl::IsInvalidArgument(status)) << status;
    return;
  }
  CheckImage(example.image);
  CHECK(example.label >= 0 && example.label < kNumClasses) << example.label;
  for (const Box& box : example.boxes) {
    CheckUsableBox(box);
    CHECK(box.label >= 0 && box.label < kNumClasses) << box.label;
    CHECK(std::isfinite(box.weight) && box.weight >= 0) << box.weight;
  }
  if (example.image.pixels.size() <= kSmallImageBytes) CheckRoundTrip(example);
}

}  // namespace
}  // namespace pushpull

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  pushpull::Run(pushpull::AsText(data, size));
  return 0;
}
