// Tested by tests/ps_server/warm_start/tensor_source_test.cc.
#include "ps_server/warm_start/tensor_bundle.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/crc32c.h"
#include "common/base/status_macros.h"
#include "protos/tensor_bundle.pb.h"
#include "ps_server/warm_start/object_graph.h"
#include "ps_server/warm_start/sorted_table.h"

namespace pushpull {
namespace {

constexpr int kFloat32 = 1;
constexpr int64_t kMaxShards = 99999;
constexpr int64_t kMaxElements = int64_t{1} << 60;  // so that the size in bytes fits an int64

class TensorBundle final : public TensorSource {
 public:
  explicit TensorBundle(std::string prefix) : prefix_(std::move(prefix)) {}

  absl::Status Open(FileSystem& files) {
    const std::string index_path = prefix_ + ".index";
    PP_ASSIGN_OR_RETURN(const std::string index, ReadWholeFile(files, index_path));
    PP_ASSIGN_OR_RETURN(const std::vector<TableEntry> table, ReadSortedTable(index, index_path));
    tensorflow::BundleHeaderProto header;
    if (table.empty() || !table[0].first.empty() || !header.ParseFromString(table[0].second)) {
      return absl::DataLossError(absl::StrCat(index_path, ": the header entry is missing"));
    }
    if (header.endianness() != tensorflow::BundleHeaderProto::LITTLE) {
      return absl::UnimplementedError(
          absl::StrCat(index_path, ": the checkpoint was written on a big-endian machine"));
    }
    if (header.num_shards() < 1 || header.num_shards() > kMaxShards) {
      return absl::DataLossError(
          absl::StrCat(index_path, ": it claims ", header.num_shards(), " data files"));
    }
    for (int i = 0; i < header.num_shards(); ++i) {
      const std::string path =
          absl::StrFormat("%s.data-%05d-of-%05d", prefix_, i, header.num_shards());
      PP_ASSIGN_OR_RETURN(shards_.emplace_back(), files.OpenForRead(path));
      shard_paths_.push_back(path);
    }
    for (size_t i = 1; i < table.size(); ++i) {
      PP_RETURN_IF_ERROR(AddTensor(index_path, table[i]));
    }
    return entries_.contains(kObjectGraphKey) ? UseVariableNames() : absl::OkStatus();
  }

  std::string describe() const override { return absl::StrCat("TensorFlow checkpoint ", prefix_); }
  const std::vector<SourceTensor>& tensors() const override { return tensors_; }
  bool is_tensorflow() const override { return true; }

  absl::Status Read(const SourceTensor& tensor, absl::Span<float> values) const override {
    const tensorflow::BundleEntryProto& entry = entries_.at(tensor.name);
    const std::string& path = shard_paths_[entry.shard_id()];
    PP_RETURN_IF_ERROR(
        shards_[entry.shard_id()]->ReadAt(entry.offset(), values.data(), entry.size()));
    if (Crc32c(values.data(), entry.size()) != UnmaskCrc32c(entry.crc32c())) {
      return absl::DataLossError(absl::StrCat(path, ": tensor ", tensor.name,
                                              " has a wrong checksum: the file is damaged"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status AddTensor(const std::string& index_path, const TableEntry& item) {
    tensorflow::BundleEntryProto entry;
    if (!entry.ParseFromString(item.second)) {
      return absl::DataLossError(
          absl::StrCat(index_path, ": the entry of ", item.first, " is malformed"));
    }
    SourceTensor tensor;
    tensor.name = item.first;
    int64_t elements = 1;
    for (const auto& dimension : entry.shape().dim()) {
      tensor.shape.push_back(dimension.size());
      // Only guards against overflow. The size of the data file bounds the size below.
      if (dimension.size() < 0 || __builtin_mul_overflow(elements, dimension.size(), &elements) ||
          elements > kMaxElements) {
        return absl::DataLossError(
            absl::StrCat(index_path, ": ", item.first, " has an impossible shape"));
      }
    }
    if (entry.slices_size() > 0) {
      tensor.unusable = "partitioned variables are not supported";
    } else if (entry.dtype() != kFloat32) {
      tensor.unusable = absl::StrCat("dtype ", entry.dtype(), " is not float32");
    } else if (entry.size() != elements * static_cast<int64_t>(sizeof(float)) ||
               !LiesInItsFile(entry)) {
      return absl::DataLossError(absl::StrCat(index_path, ": ", item.first,
                                              " does not lie within its data file: the checkpoint "
                                              "is damaged or its files do not belong together"));
    }
    tensors_.push_back(std::move(tensor));
    entries_.emplace(item.first, std::move(entry));
    return absl::OkStatus();
  }

  // Gives the tensors of a checkpoint of objects the names of their variables. A tensor without a
  // name, or with one that an earlier tensor has, keeps its key.
  absl::Status UseVariableNames() {
    const tensorflow::BundleEntryProto entry = entries_.at(kObjectGraphKey);
    if (!LiesInItsFile(entry)) {
      return absl::DataLossError(
          absl::StrCat(prefix_, ": ", kObjectGraphKey, " does not lie within its data file"));
    }
    std::string bytes(entry.size(), '\0');
    PP_RETURN_IF_ERROR(
        shards_[entry.shard_id()]->ReadAt(entry.offset(), bytes.data(), bytes.size()));
    PP_ASSIGN_OR_RETURN(const auto names,
                        ReadObjectGraph(bytes, entry.crc32c(), shard_paths_[entry.shard_id()]));
    for (SourceTensor& tensor : tensors_) {
      const auto name = names.find(tensor.name);
      if (name == names.end() || entries_.contains(name->second)) continue;
      auto node = entries_.extract(tensor.name);
      node.key() = tensor.name = name->second;
      entries_.insert(std::move(node));
    }
    std::sort(tensors_.begin(), tensors_.end(),
              [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
    return absl::OkStatus();
  }

  bool LiesInItsFile(const tensorflow::BundleEntryProto& entry) const {
    return entry.shard_id() >= 0 && entry.shard_id() < static_cast<int>(shards_.size()) &&
           entry.size() >= 0 && entry.offset() >= 0 &&
           entry.offset() <= shards_[entry.shard_id()]->size_bytes() - entry.size();
  }

  const std::string prefix_;
  std::vector<std::unique_ptr<ReadableFile>> shards_;
  std::vector<std::string> shard_paths_;
  std::vector<SourceTensor> tensors_;
  std::map<std::string, tensorflow::BundleEntryProto> entries_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> OpenTensorBundle(FileSystem& files,
                                                               const std::string& prefix) {
  auto bundle = std::make_unique<TensorBundle>(prefix);
  PP_RETURN_IF_ERROR(bundle->Open(files));
  return bundle;
}

}  // namespace pushpull
