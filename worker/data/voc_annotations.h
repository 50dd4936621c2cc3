// The annotations of a Pascal VOC folder: <path>/Annotations/<id>.xml, the ids of a split in
// <path>/ImageSets/Main/<split>.txt, images in <path>/JPEGImages. Functions only; thread-safe.
#ifndef PUSHPULL_WORKER_DATA_VOC_ANNOTATIONS_H_
#define PUSHPULL_WORKER_DATA_VOC_ANNOTATIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/label_map.h"

namespace pushpull {

// The contents of one annotation file. Edges are pixels divided by the image's size, without VOC's
// shift by one; boxes are as the file has them, not yet checked (CheckBox), labels -1. filename and
// source_id stay empty. INVALID_ARGUMENT with `path`, and the line or the object: not XML, another
// root, no size, no name or bndbox of an object, an edge that is no number.
absl::StatusOr<AnnotatedImage> ParseVocAnnotation(absl::string_view xml, absl::string_view path);

// The image ids (file names without extension) of a split: the first word of each line. NOT_FOUND
// names the splits there are; INVALID_ARGUMENT: empty, or an id twice.
absl::StatusOr<std::vector<std::string>> ReadVocSplit(FileSystem& files, const std::string& path,
                                                      const std::string& split);

// The class names of all annotation files, sorted, from id 1: the same map for every split.
absl::StatusOr<LabelMap> DeriveVocLabelMap(FileSystem& files, const std::string& path);

// The image file of each id, in order: <id>.jpg, .jpeg or .png. NOT_FOUND names the first that is
// absent and says how many are.
absl::StatusOr<std::vector<std::string>> FindVocImages(FileSystem& files, const std::string& path,
                                                       const std::vector<std::string>& ids);

std::string VocAnnotationPath(const std::string& path, absl::string_view id);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_VOC_ANNOTATIONS_H_
