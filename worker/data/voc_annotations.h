// Reads the annotations of a Pascal VOC folder. <path>/Annotations/<id>.xml annotates an image,
// <path>/ImageSets/Main/<split>.txt lists the ids of a split, and <path>/JPEGImages has the images.
//
// Thread rule: functions without shared state. Those with a FileSystem block on the disk.
#ifndef PUSHPULL_WORKER_DATA_VOC_ANNOTATIONS_H_
#define PUSHPULL_WORKER_DATA_VOC_ANNOTATIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "common/base/file_system.h"
#include "worker/data/annotated_image.h"
#include "worker/data/label_map.h"

namespace pushpull {

// Parses one annotation file. Box edges are the file's pixels divided by the image's size, without
// VOC's shift by one. The boxes are not checked yet (see CheckBox) and their labels are -1.
// `filename` and `source_id` stay empty.
// INVALID_ARGUMENT: the text is not XML, has another root than <annotation> or no valid size, an
// object has no name or no bndbox, or a value cannot be parsed. The message begins with `path` and
// gives the line or the object.
absl::StatusOr<AnnotatedImage> ParseVocAnnotation(absl::string_view xml, absl::string_view path);

// Returns the image ids (file names without extension) of a split, which are the first words of the
// lines in its file. NOT_FOUND: no such split; the message lists the existing ones.
// INVALID_ARGUMENT: the file has no id, or has an id twice.
absl::StatusOr<std::vector<std::string>> ReadVocSplit(FileSystem& files, const std::string& path,
                                                      const std::string& split);

// Makes a label map from the class names in all annotation files, sorted, with ids from 1. The map
// is the same for every split. INVALID_ARGUMENT: there is no object in any file. Other errors as
// ParseVocAnnotation.
absl::StatusOr<LabelMap> DeriveVocLabelMap(FileSystem& files, const std::string& path);

// Returns the path of each id's image, <id>.jpg, .jpeg or .png, in the order of `ids`. NOT_FOUND:
// images are missing; the message gives their number and the first of them.
absl::StatusOr<std::vector<std::string>> FindVocImages(FileSystem& files, const std::string& path,
                                                       const std::vector<std::string>& ids);

// Returns <path>/Annotations/<id>.xml.
std::string VocAnnotationPath(const std::string& path, absl::string_view id);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_VOC_ANNOTATIONS_H_
