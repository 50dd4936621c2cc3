// Scenes with several objects for detectors: cut-out pictures ("glyphs") of three sizes at random
// places on a noisy background, each with its box. Example i is a pure function of (seed, i) and
// the glyphs.
#ifndef PUSHPULL_WORKER_DATA_SCENE_SOURCE_H_
#define PUSHPULL_WORKER_DATA_SCENE_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/data/image_source.h"

namespace pushpull {

struct SceneOptions {
  int64_t num_examples = 10000;
  uint64_t seed = 1;
  int height = 160;  // at least 64, as the width
  int width = 160;
  int num_channels = 3;  // 1 or 3
  int max_objects = 12;  // from 1 to so many; fewer where no room is left
};

class SceneSource final : public ImageSource {
 public:
  // Grey pictures whose brightness says how much of a pixel the object covers, such as handwritten
  // digits. INVALID_ARGUMENT names the option that is out of range, or says that the glyphs are not
  // grey.
  static absl::StatusOr<std::unique_ptr<ImageSource>> Create(const SceneOptions& options,
                                                             std::unique_ptr<ImageSource> glyphs);

  int64_t size() const override { return options_.num_examples; }
  int num_classes() const override { return glyphs_->num_classes(); }
  std::vector<std::string> class_names() const override { return glyphs_->class_names(); }
  std::string describe() const override;
  // The example's label is that of its first object.
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool) const override { return glyphs_->Check(pool); }

 private:
  SceneSource(const SceneOptions& options, std::unique_ptr<ImageSource> glyphs)
      : options_(options), glyphs_(std::move(glyphs)) {}

  const SceneOptions options_;
  const std::unique_ptr<ImageSource> glyphs_;
};

// The shapes of synthetic_shapes.h as glyphs, one per class.
absl::StatusOr<std::unique_ptr<ImageSource>> MakeShapeGlyphs(int num_classes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SCENE_SOURCE_H_
