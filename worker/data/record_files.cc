#include "worker/data/record_files.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"
#include "worker/data/file_glob.h"

namespace pushpull {
namespace {

constexpr int kMaxShards = 99999;  // shard names have five digits
constexpr absl::string_view kOf = "-of-";

std::string ShardName(absl::string_view prefix, int shard, int num_shards) {
  return absl::StrFormat("%s-%05d-of-%05d", prefix, shard, num_shards);
}

// Returns ("a.record", 10) for "a.record-00003-of-00010", and nullopt for a name of another form.
std::optional<std::pair<std::string, int>> ShardsOf(absl::string_view path) {
  const size_t of = path.rfind(kOf);
  int num_shards = 0;
  int shard = 0;
  if (of == absl::string_view::npos || of < 6 || path[of - 6] != '-' ||
      !absl::SimpleAtoi(path.substr(of + kOf.size()), &num_shards) ||
      !absl::SimpleAtoi(path.substr(of - 5, 5), &shard) || num_shards < 1 ||
      num_shards > kMaxShards) {
    return std::nullopt;
  }
  return std::make_pair(std::string(path.substr(0, of - 6)), num_shards);
}

absl::Status CheckShards(const std::string& prefix, int num_shards) {
  int missing = 0;
  std::string first;
  for (int i = 0; i < num_shards; ++i) {
    const std::string name = ShardName(prefix, i, num_shards);
    PP_ASSIGN_OR_RETURN(const PathKind kind, KindOfPath(name));
    if (kind == PathKind::kFile) continue;
    if (missing++ == 0) first = name;
  }
  if (missing == 0) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(missing, " of the ", num_shards, " shards of ", prefix,
                                          " do not exist, the first of them ", first));
}

absl::StatusOr<std::vector<std::string>> ExpandGlob(const std::string& pattern) {
  PP_ASSIGN_OR_RETURN(std::vector<std::string> paths, MatchGlob(pattern));
  std::map<std::string, int> sets;
  for (const std::string& path : paths) {
    const auto shards = ShardsOf(path);
    if (!shards.has_value()) continue;
    const auto [set, is_new] = sets.insert(*shards);
    if (is_new || set->second == shards->second) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        pattern, ": matches shards of two sets, ", set->first, "@", set->second, " and ",
        set->first, "@", shards->second,
        ", so images could count double; remove the set that is out of date, or name one of them"));
  }
  // A pattern that covers all shards of a set requires all of them to exist. A pattern that selects
  // some shards does not.
  if (absl::StrContains(pattern, absl::StrCat("*", kOf)) ||
      absl::StrContains(pattern, absl::StrCat("?????", kOf)) || absl::EndsWith(pattern, "*")) {
    for (const auto& [prefix, num_shards] : sets) {
      PP_RETURN_IF_ERROR(CheckShards(prefix, num_shards));
    }
  }
  return paths;
}

absl::StatusOr<std::vector<std::string>> Expand(const std::string& path) {
  if (absl::StrContains(path, "PATH_TO_BE_CONFIGURED")) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": PATH_TO_BE_CONFIGURED is the placeholder of a sample config; write "
                     "where your records are"));
  }
  if (absl::StrContains(path, "://")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": remote storage is not read; copy the records to this machine and give that path"));
  }
  PP_ASSIGN_OR_RETURN(const PathKind kind, KindOfPath(path));
  if (kind == PathKind::kFile) return std::vector<std::string>{path};
  if (kind == PathKind::kFolder) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": a folder, expected a file, a glob such as ", path, "/*.record, or name@10"));
  }
  const size_t at = path.rfind('@');
  int num_shards = 0;
  if (at != std::string::npos && at > 0 && absl::SimpleAtoi(path.substr(at + 1), &num_shards)) {
    if (num_shards < 1 || num_shards > kMaxShards) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": number of shards is ", num_shards, ", expected 1 to ", kMaxShards));
    }
    const std::string prefix = path.substr(0, at);
    PP_RETURN_IF_ERROR(CheckShards(prefix, num_shards));
    std::vector<std::string> paths;
    for (int i = 0; i < num_shards; ++i) paths.push_back(ShardName(prefix, i, num_shards));
    return paths;
  }
  if (IsGlob(path)) return ExpandGlob(path);
  return absl::NotFoundError(absl::StrCat(path, ": no such file"));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandRecordPaths(const std::vector<std::string>& paths) {
  std::vector<std::string> all;
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    PP_ASSIGN_OR_RETURN(std::vector<std::string> expanded, Expand(path));
    for (std::string& file : expanded) {
      PP_ASSIGN_OR_RETURN(const PathKind kind, KindOfPath(file));
      if (kind == PathKind::kFolder) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": a folder, expected a TFRecord file (", path, ")"));
      }
      if (!seen.insert(file).second) {
        return absl::InvalidArgumentError(
            absl::StrCat(file, ": meant twice by the input paths; its images would count double"));
      }
      all.push_back(std::move(file));
    }
  }
  if (all.empty()) return absl::InvalidArgumentError("no input path; give the TFRecord files");
  return all;
}

}  // namespace pushpull
