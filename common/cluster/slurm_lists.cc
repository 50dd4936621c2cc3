#include "common/cluster/slurm_lists.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

absl::Status Malformed(absl::string_view text, absl::string_view expected, absl::string_view got) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", text, "\": expected ", expected, ", got \"", got, "\""));
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= 9 &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

// Splits the list at the commas outside brackets. The names are still compressed.
absl::StatusOr<std::vector<absl::string_view>> SplitNames(absl::string_view list) {
  std::vector<absl::string_view> names;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= list.size(); ++i) {
    const char c = i < list.size() ? list[i] : ',';
    if (c == '[' || c == ']') {
      if (inside == (c == '[')) {
        return Malformed(list, "brackets in pairs", list.substr(0, i + 1));
      }
      inside = !inside;
    } else if (c == ',' && (!inside || i == list.size())) {
      if (inside) return Malformed(list, "a closing bracket", list.substr(begin));
      if (i == begin) return Malformed(list, "a host name before each comma", list.substr(0, i));
      names.push_back(list.substr(begin, i - begin));
      begin = i + 1;
    }
  }
  return names;
}

// Returns 08, 09, 10, 20 for "08-10,20". The numbers of a range are as wide as its first one.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view ranges,
                                                      absl::string_view list) {
  std::vector<std::string> numbers;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    const absl::string_view last = range.find('-') == range.npos ? ends.first : ends.second;
    int from = 0;
    int to = 0;
    if (!IsNumber(ends.first) || !IsNumber(last) || !absl::SimpleAtoi(ends.first, &from) ||
        !absl::SimpleAtoi(last, &to) || from > to) {
      return Malformed(list, "rising ranges of numbers in brackets", range);
    }
    if (to - from >= kMaxSlurmNodes) {
      return Malformed(list, absl::StrCat("at most ", kMaxSlurmNodes, " hosts"), range);
    }
    const int width = static_cast<int>(ends.first.size());
    for (int i = from; i <= to; ++i) numbers.push_back(absl::StrFormat("%0*d", width, i));
  }
  return numbers;
}

absl::StatusOr<std::vector<std::string>> ExpandName(absl::string_view name,
                                                    absl::string_view list) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = std::min(name.find('['), name.size());
    const absl::string_view plain = name.substr(0, open);
    name.remove_prefix(open);
    std::vector<std::string> numbers = {""};
    if (!name.empty()) {
      const size_t close = name.find(']');  // exists: SplitNames has checked the pairs
      PP_ASSIGN_OR_RETURN(numbers, ExpandRanges(name.substr(1, close - 1), list));
      name.remove_prefix(close + 1);
    }
    if (names.size() * numbers.size() > kMaxSlurmNodes) {
      return Malformed(list, absl::StrCat("at most ", kMaxSlurmNodes, " hosts"), name);
    }
    std::vector<std::string> longer;
    for (const std::string& begin : names) {
      for (const std::string& number : numbers)
        longer.push_back(absl::StrCat(begin, plain, number));
    }
    names = std::move(longer);
  }
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list) {
  PP_ASSIGN_OR_RETURN(const std::vector<absl::string_view> names, SplitNames(list));
  std::vector<std::string> hosts;
  for (const absl::string_view name : names) {
    PP_ASSIGN_OR_RETURN(const std::vector<std::string> expanded, ExpandName(name, list));
    if (hosts.size() + expanded.size() > kMaxSlurmNodes) {
      return Malformed(list, absl::StrCat("at most ", kMaxSlurmNodes, " hosts"), name);
    }
    hosts.insert(hosts.end(), expanded.begin(), expanded.end());
  }
  return hosts;
}

absl::StatusOr<std::vector<int>> ExpandTasksPerNode(absl::string_view text) {
  std::vector<int> result;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    absl::string_view count = part;
    absl::string_view times = "1";
    if (const size_t open = part.find("(x"); open != part.npos) {
      count = part.substr(0, open);
      times = part.substr(open + 2);
      if (times.empty() || times.back() != ')') return Malformed(text, "N(xTIMES)", part);
      times.remove_suffix(1);
    }
    int tasks = 0;
    int nodes = 0;
    if (!IsNumber(count) || !IsNumber(times) || !absl::SimpleAtoi(count, &tasks) ||
        !absl::SimpleAtoi(times, &nodes) || tasks < 1 || tasks > kMaxSlurmTasks || nodes < 1 ||
        nodes + result.size() > kMaxSlurmNodes) {
      return Malformed(text, "task counts as N or N(xTIMES)", part);
    }
    result.insert(result.end(), nodes, tasks);
  }
  return result;
}

}  // namespace pushpull
