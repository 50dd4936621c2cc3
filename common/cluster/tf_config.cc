#include "common/cluster/tf_config.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

using nlohmann::json;

constexpr char kSource[] = "TF_CONFIG";
constexpr int64_t kMaxIndex = 1 << 20;

absl::Status Malformed(absl::string_view where, absl::string_view expected, const json& got) {
  return absl::InvalidArgumentError(absl::StrCat(
      "TF_CONFIG: ", where, ": expected ", expected, ", got ",
      got.dump(/*indent=*/-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace)));
}

// Parses the addresses of one role: an array, or an object from index to address.
absl::StatusOr<std::map<int64_t, std::string>> ParseJob(const std::string& where, const json& job) {
  if (!job.is_array() && !job.is_object())
    return Malformed(where, "an array of \"host:port\"", job);
  std::map<int64_t, std::string> addresses;
  int64_t position = 0;
  for (const auto& [key, value] : job.items()) {
    int64_t index = position++;
    if (job.is_object() && (!absl::SimpleAtoi(key, &index) || index < 0 || index > kMaxIndex)) {
      return Malformed(where, "task indices as keys", json(key));
    }
    if (!value.is_string())
      return Malformed(absl::StrCat(where, "[", key, "]"), "\"host:port\"", value);
    addresses[index] = value.get<std::string>();
  }
  return addresses;
}

absl::Status ParseCluster(const std::string& where, const json& cluster, TfConfig* config) {
  if (!cluster.is_object()) return Malformed(where, "an object", cluster);
  for (const auto& [name, job] : cluster.items()) {
    if (name == "evaluator") continue;
    const std::string field = absl::StrCat(where, ".", name);
    PP_ASSIGN_OR_RETURN(auto addresses, ParseJob(field, job));
    config->sparse = config->sparse || job.is_object();
    if (name == "ps") {
      config->ps = std::move(addresses);
    } else if (name == "worker") {
      config->workers = std::move(addresses);
    } else if (name == "chief" || name == "master") {
      config->chief.merge(addresses);
      if (config->chief.size() > 1 || !addresses.empty())
        return Malformed(field, "one address in chief and master together", job);
    } else {
      return Malformed(where, "jobs named ps, worker, chief, master or evaluator", json(name));
    }
  }
  return absl::OkStatus();
}

absl::Status ParseTask(const json& root, TfConfig* config) {
  if (!root.contains("task")) return absl::OkStatus();
  const json& task = root["task"];
  if (!task.is_object()) return Malformed("task", "an object", task);
  const json type = task.value("type", json("chief"));
  if (!type.is_string()) return Malformed("task.type", "a string", type);
  config->task_type = type == "master" ? "chief" : type.get<std::string>();
  if (config->task_type != "ps" && config->task_type != "worker" && config->task_type != "chief" &&
      config->task_type != "evaluator") {
    return Malformed("task.type", "ps, worker, chief, master or evaluator", type);
  }
  const json index = task.value("index", json(0));
  // Some launchers write the index as a string.
  if (index.is_number_integer()) {
    config->task_index = index.get<int64_t>();
  } else if (!index.is_string() ||
             !absl::SimpleAtoi(index.get<std::string>(), &config->task_index)) {
    return Malformed("task.index", "a number from 0", index);
  }
  if (config->task_index < 0 || config->task_index > kMaxIndex) {
    return Malformed("task.index", "a number from 0", index);
  }
  return absl::OkStatus();
}

// Checks that the cluster has this task. A ps task of a sparse cluster is exempt: it sees only
// itself, at any index.
absl::Status CheckTaskIndex(const TfConfig& config) {
  if (!config.task_type.has_value() || config.task_type == "evaluator") return absl::OkStatus();
  if (config.sparse && config.task_type == "ps") return absl::OkStatus();
  const auto& peers = config.task_type == "ps"       ? config.ps
                      : config.task_type == "worker" ? config.workers
                                                     : config.chief;
  const bool alone = config.ps.empty() && config.workers.empty() && config.chief.empty();
  if (alone || peers.count(config.task_index) > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("TF_CONFIG: task.index ", config.task_index,
                                                 " is not within cluster.", *config.task_type, " (",
                                                 peers.size(), " addresses)"));
}

absl::StatusOr<json> ParseObject(absl::string_view text) {
  json root = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (root.is_object()) return root;
  return absl::InvalidArgumentError(
      absl::StrCat("TF_CONFIG: expected a JSON object, got: ", text.substr(0, 100)));
}

// Returns all ps addresses in order, or an error if an index is missing.
absl::StatusOr<std::vector<std::string>> InOrder(const std::map<int64_t, std::string>& ps) {
  std::vector<std::string> addresses;
  for (const auto& [index, address] : ps) {
    if (index != static_cast<int64_t>(addresses.size())) {
      return absl::InvalidArgumentError(absl::StrCat("TF_CONFIG: cluster.ps: index ",
                                                     addresses.size(), " is missing before ", index,
                                                     "; a worker needs every ps task"));
    }
    addresses.push_back(address);
  }
  return addresses;
}

absl::Status FillWorker(const TfConfig& config, ClusterView* view) {
  PP_ASSIGN_OR_RETURN(std::vector<std::string> ps, InOrder(config.ps));
  if (!ps.empty()) {
    view->num_ps = {static_cast<int>(ps.size()), kSource};
    view->ps = {std::move(ps), kSource};
  } else {
    view->gaps = "TF_CONFIG has no address in cluster.ps";
  }
  const int64_t chiefs = static_cast<int64_t>(config.chief.size());
  const int64_t workers = chiefs + static_cast<int64_t>(config.workers.size());
  if (config.sparse) {
    view->gaps =
        "TF_CONFIG is in the sparse form (enableDynamicWorker), in which a worker sees no other "
        "worker";
  } else if (workers > 0) {
    view->num_workers = {static_cast<int>(workers), kSource};
  }
  if (config.task_type == "worker") {
    view->index = {static_cast<int>(chiefs + config.task_index), kSource};
  } else if (config.task_type == "chief") {
    view->index = {0, kSource};
  }
  return absl::OkStatus();
}

absl::Status FillPs(const TfConfig& config, ClusterView* view) {
  if (config.task_type == "ps") view->index = {static_cast<int>(config.task_index), kSource};
  if (!config.sparse) {
    PP_ASSIGN_OR_RETURN(std::vector<std::string> ps, InOrder(config.ps));
    if (ps.empty()) return absl::OkStatus();
    view->num_ps = {static_cast<int>(ps.size()), kSource};
    view->ps = {std::move(ps), kSource};
    return absl::OkStatus();
  }
  view->gaps =
      "TF_CONFIG is in the sparse form (enableDynamicWorker), in which a ps task sees itself alone";
  // An object names the index of this task. An array of one address can only be this task.
  const auto own = config.ps.find(config.task_index);
  if (own != config.ps.end()) {
    view->own_address = {own->second, kSource};
  } else if (config.ps.size() == 1) {
    view->own_address = {config.ps.begin()->second, kSource};
  }
  return absl::OkStatus();
}

Role RoleOf(absl::string_view task_type) {
  if (task_type == "ps") return Role::kPs;
  return task_type == "evaluator" ? Role::kEvaluator : Role::kWorker;
}

}  // namespace

absl::StatusOr<TfConfig> ParseTfConfig(absl::string_view text) {
  PP_ASSIGN_OR_RETURN(const json root, ParseObject(text));
  TfConfig config;
  if (root.contains("cluster") && root.contains("sparseCluster")) {
    return absl::InvalidArgumentError("TF_CONFIG: has both cluster and sparseCluster");
  }
  if (root.contains("sparseCluster")) {
    PP_RETURN_IF_ERROR(ParseCluster("sparseCluster", root["sparseCluster"], &config));
    config.sparse = true;
  } else if (root.contains("cluster")) {
    PP_RETURN_IF_ERROR(ParseCluster("cluster", root["cluster"], &config));
  }
  PP_RETURN_IF_ERROR(ParseTask(root, &config));
  PP_RETURN_IF_ERROR(CheckTaskIndex(config));
  return config;
}

absl::StatusOr<ClusterView> ReadTfConfig(Role role, absl::string_view text) {
  TfConfig config;
  if (role == Role::kEvaluator) {
    PP_ASSIGN_OR_RETURN(const json root, ParseObject(text));
    PP_RETURN_IF_ERROR(ParseTask(root, &config));
  } else {
    PP_ASSIGN_OR_RETURN(config, ParseTfConfig(text));
  }
  ClusterView view;
  if (config.task_type.has_value()) view.role = {RoleOf(*config.task_type), "TF_CONFIG: task.type"};
  if (view.role.has_value() && view.role->value != role) return view;
  if (role == Role::kWorker) PP_RETURN_IF_ERROR(FillWorker(config, &view));
  if (role == Role::kPs) PP_RETURN_IF_ERROR(FillPs(config, &view));
  return view;
}

}  // namespace pushpull
