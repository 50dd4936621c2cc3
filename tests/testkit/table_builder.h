// Writes sorted tables (ps_server/warm_start/sorted_table.h) with correct checksums around any
// bytes.
#ifndef PUSHPULL_TESTS_TESTKIT_TABLE_BUILDER_H_
#define PUSHPULL_TESTS_TESTKIT_TABLE_BUILDER_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "ps_server/warm_start/sorted_table.h"

namespace pushpull {

// Encodes entries without shared prefixes, and one restart offset.
std::string EncodeTableBlock(const std::vector<TableEntry>& entries);

// Returns a file of these two blocks.
std::string WrapTableBlocks(absl::string_view data_block, absl::string_view index_block);

// Same, with an index block that points at the data block.
std::string WrapTableBlock(absl::string_view data_block);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_TABLE_BUILDER_H_
