#include "tests/testkit/store/state_dir_test_util.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

template <typename T>
std::vector<T*> AllVectors(const BasicStateVectors<T>& vectors) {
  std::vector<T*> all = {vectors.weights};
  for (T* slot : vectors.slots) {
    if (slot != nullptr) all.push_back(slot);
  }
  if (vectors.ema != nullptr) all.push_back(vectors.ema);
  return all;
}

float Value(uint64_t version, size_t vector) { return static_cast<float>(version + 1000 * vector); }

}  // namespace

VariableStoreOptions TestStateDir::options() const {
  VariableStoreOptions options;
  options.state_dir = path();
  options.name = "state";
  options.owner.run_id = "0123456789abcdef";
  options.max_metadata_bytes = 1000;
  return options;
}

StateDirTest::StateDirTest()
    : StateDirTest(*VariableLayout::Create({MakeVariable("w", {3000})}), MakeMomentum()) {}

StateDirTest::StateDirTest(const VariableLayout& layout, const OptimizerSpec& optimizer)
    : layout_(layout), optimizer_(optimizer) {}

std::unique_ptr<VariableStore> StateDirTest::Open(const VariableStoreOptions& options) {
  auto store = VariableStore::Open(options, layout_, optimizer_);
  CHECK(store.ok()) << store.status();
  return *std::move(store);
}

VariableStoreOptions StateDirTest::OptionsOf(const std::string& name, const std::string& run) {
  VariableStoreOptions options = dir_.options();
  options.name = name;
  options.owner.train_dir = folders_.MakeFolder(run);
  options.owner.folder_identity = files_.FolderIdentity(options.owner.train_dir).value();
  return options;
}

void WriteContents(const VariableStore& store, uint64_t version, const StateVectors& to,
                   int64_t elements) {
  const std::vector<float*> all = AllVectors(to);
  CHECK_LE(elements, store.range().size());
  for (size_t k = 0; k < all.size(); ++k) std::fill_n(all[k], elements, Value(version, k));
}

void FillVersion(VariableStore* store, uint64_t version, uint64_t epoch,
                 absl::string_view metadata) {
  const auto to = store->BeginFill(version);
  CHECK(to.ok()) << to.status();
  WriteContents(*store, version, *to, store->range().size());
  absl::Status status = store->Commit(epoch, metadata);
  status.Update(store->AdoptFile());
  CHECK(status.ok()) << status;
}

bool ApplyVersion(VariableStore* store, uint64_t epoch, absl::string_view metadata) {
  const auto buffers = store->BeginApply();
  if (!buffers.ok()) return false;
  PinnedVersion from;
  from.version = buffers->version - 1;
  from.vectors = buffers->from;
  if (!DescribeContents(*store, from).empty()) return false;
  WriteContents(*store, buffers->version, buffers->to, store->range().size());
  return store->Commit(epoch, metadata).ok();
}

std::string DescribeContents(const VariableStore& store, const PinnedVersion& pinned) {
  const std::vector<const float*> all = AllVectors(pinned.vectors);
  for (size_t k = 0; k < all.size(); ++k) {
    for (int64_t i = 0; i < store.range().size(); ++i) {
      if (all[k][i] != Value(pinned.version, k)) {
        return absl::StrCat("version ", pinned.version, ": element ", i, " of vector ", k, " is ",
                            all[k][i], ", expected ", Value(pinned.version, k));
      }
    }
  }
  return "";
}

}  // namespace pushpull
