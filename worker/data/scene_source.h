// A generated data set for detectors: scenes with several objects. The objects are small images
// ("glyphs") of another source, drawn in three sizes at random places on a noisy background
// without overlapping boxes. Example i depends only on the options, i and the glyphs.
#ifndef PUSHPULL_WORKER_DATA_SCENE_SOURCE_H_
#define PUSHPULL_WORKER_DATA_SCENE_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "worker/data/image_source.h"

namespace pushpull {

// The ranges are those of CheckReader (common/config/reader_checks.h).
struct SceneOptions {
  int64_t num_examples = 10000;
  uint64_t seed = 1;
  int height = 160;      // in pixels
  int width = 160;       // in pixels
  int num_channels = 3;  // 1 or 3
  int max_objects = 12;  // a scene gets 1 to max_objects, fewer if there is no room
};

class SceneSource final : public ImageSource {
 public:
  // `glyphs` must have grey images in which the brightness of a pixel is the share that the object
  // covers, such as handwritten digits.
  SceneSource(const SceneOptions& options, std::unique_ptr<ImageSource> glyphs)
      : options_(options), glyphs_(std::move(glyphs)) {}

  int64_t size() const override { return options_.num_examples; }
  int num_classes() const override { return glyphs_->num_classes(); }
  std::vector<std::string> class_names() const override { return glyphs_->class_names(); }
  std::string describe() const override;
  // The example's label is that of its first object, or 0 if no object could be placed.
  absl::Status Get(int64_t index, Example* example) const override;
  absl::Status Check(ThreadPool* pool, StoppedFn stopped) const override {
    return glyphs_->Check(pool, stopped);
  }

 private:
  const SceneOptions options_;
  const std::unique_ptr<ImageSource> glyphs_;
};

// Returns a source with one glyph per class, the first shapes of synthetic_shapes.h.
std::unique_ptr<ImageSource> MakeShapeGlyphs(int num_classes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_SCENE_SOURCE_H_
