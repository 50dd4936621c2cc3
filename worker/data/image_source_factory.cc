#include "worker/data/image_source_factory.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/passing_error.h"
#include "common/base/status_macros.h"
#include "worker/data/image_sources.h"
#include "worker/data/label_map.h"
#include "worker/data/sampled_source.h"

namespace pushpull {
namespace {

// Adds the name of a field of the reader to an error.
absl::Status InField(const ImageSourceOptions& options, absl::string_view field,
                     const absl::Status& error) {
  return Annotated(error, absl::StrCat(options.field_name, ".", field, ": ", error.message()));
}

}  // namespace

std::string ResolveDataPath(absl::string_view data_dir, absl::string_view path) {
  if (data_dir.empty() || absl::StartsWith(path, "/")) return std::string(path);
  return absl::StrCat(data_dir, absl::EndsWith(data_dir, "/") ? "" : "/", path);
}

absl::StatusOr<std::unique_ptr<ImageSource>> OpenImageSource(const config::InputReader& reader,
                                                             const ImageSourceOptions& options) {
  SourceOptions source_options{options, std::nullopt};
  if (!reader.label_map_path().empty()) {
    PosixFileSystem files;
    absl::StatusOr<LabelMap> map =
        LabelMap::Load(files, source_options.Path(reader.label_map_path()));
    if (!map.ok()) return InField(options, "label_map_path", map.status());
    LOG_IF(WARNING, map->num_classes() < options.num_classes)
        << options.field_name << ".label_map_path: the ids of " << map->source() << " go up to "
        << map->num_classes() << ", the model has num_classes: " << options.num_classes
        << "; no example is of the other classes";
    source_options.label_map = *std::move(map);
  }
  SourceOrError source = OpenChosenSource(reader, source_options);
  if (source.ok()) {
    const int64_t n = reader.sample_1_of_n_examples();
    return n == 1 ? std::move(source)
                  : SourceOrError(std::make_unique<SampledSource>(*std::move(source), n));
  }
  const auto* const readers = reader.GetDescriptor()->FindOneofByName("input_reader");
  return InField(options, reader.GetReflection()->GetOneofFieldDescriptor(reader, readers)->name(),
                 source.status());
}

}  // namespace pushpull
