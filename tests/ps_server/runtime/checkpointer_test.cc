// The size of what a shard reports about its file of a checkpoint.
#include "ps_server/runtime/checkpointer.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gtest/gtest.h"

#include "common/checkpoint/checkpoint_writer.h"
#include "common/checkpoint/manifest.h"
#include "common/model/variable_entries.h"

namespace pushpull {
namespace {

// The names have `name_bytes` each, and as many variables are declared as the limits allow.
ps::SnapshotReply LargestReply(int64_t name_bytes) {
  google::protobuf::RepeatedPtrField<ps::VariableEntry> entries;
  int64_t entry_bytes = 0;
  CheckpointFile file;
  file.size_bytes = INT64_MAX;
  file.sha256 = std::string(64, 'f');
  for (;;) {
    ps::VariableEntry entry;
    entry.set_name(absl::StrFormat("%0*d", name_bytes, entries.size()));
    entry_bytes += static_cast<int64_t>(entry.ByteSizeLong());
    if (entries.size() == kMaxEntries || entry_bytes > kMaxEntriesBytes) break;
    // The longest name of a slot.
    for (const std::string suffix : {"", "/DelayedNesterov", "/DelayedNesterov_1"}) {
      file.tensors.push_back({entry.name() + suffix, UINT32_MAX});
    }
    file.tensors.push_back({absl::StrCat(entry.name(), "/", kEmaSuffix), UINT32_MAX});
    *entries.Add() = std::move(entry);
  }
  EXPECT_TRUE(LayoutOfEntries(entries).ok()) << LayoutOfEntries(entries).status();
  return MakeSnapshotReply(file);
}

TEST(SnapshotReplyTest, TheLargestDeclarableLayoutFits) {
  for (const int64_t name_bytes : {5, 22, 60, 120, 300, 512}) {
    const ps::SnapshotReply reply = LargestReply(name_bytes);
    EXPECT_LE(static_cast<int64_t>(reply.ByteSizeLong()) + 64 * 1024, kMaxSnapshotReplyBytes)
        << reply.tensors_size() << " tensors of variables with names of " << name_bytes;
  }
}

}  // namespace
}  // namespace pushpull
