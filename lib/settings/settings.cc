// SPDX-License-Identifier: Apache-2.0
//
// The table of all settings. A row has the variable, how its field of Options is read and shown,
// and, if all ranks must have the same, the default in words.
#include "lib/settings/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include <rondo/error.h>

#include "base/text.h"
#include "lib/settings/environment.h"
#include "lib/settings/reachability.h"
#include "lib/wire/join_report.h"

namespace rondo::settings {
namespace {

constexpr std::size_t longest_variable = 64, longest_value = 256;
constexpr std::int64_t most_on_host = 1 << 20;

// take: reads the variable if the field is not set, and fills in the default. show: the value as
// text; empty for the default. otherwise: the default in words; null if ranks may differ.
struct Setting {
  const char* variable;
  const char* otherwise;
  void (*take)(Options& options, const char* variable);
  std::string (*show)(const Options& options);
};

// For a field whose initial value means "not set". Reads the variable only then, so that a bad
// value of an unused variable does no harm.
template <class T, class Read>
void take(T& field, const char* variable, const Read& read, T otherwise = T{}) {
  if (field == T{}) field = read(variable).value_or(otherwise);
}
void take_switch(Switch& field, const char* variable) {
  if (!field.is_set()) field = switch_variable(variable).value_or(false);
}

std::string show_number(std::size_t value, std::size_t otherwise) {
  return value == otherwise ? std::string() : std::to_string(value);
}
std::string show_switch(bool on) {
  return on ? "1" : "";
}
std::string show_time(std::chrono::milliseconds time, std::chrono::milliseconds otherwise) {
  return time == otherwise ? std::string()
                           : fmt::format("{:g}", static_cast<double>(time.count()) / 1000);
}
std::string show_list(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& item : list) text.append(text.empty() ? "" : ",").append(item);
  return text;
}
// Sorts the list. A list of all transports counts as no list.
std::string show_transports(const Options& options) {
  if (allows_all_transports(options)) return {};
  std::vector<std::string> names = options.transports;
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return show_list(names);
}

std::optional<int> small_variable(const char* name, std::int64_t least, std::int64_t most) {
  const auto value = whole_variable(name, least, most);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

// For a field in which -1 means "not set".
void take_from_zero(int& field, const char* name, std::int64_t most) {
  if (field < 0) field = small_variable(name, 0, most).value_or(-1);
}
std::string show_from_zero(int value) {
  return value < 0 ? std::string() : std::to_string(value);
}

void take_ports(Options& o, const char* name) {
  if (o.port_first != 0 || o.port_last != 0) return;
  if (const auto range = port_range_variable(name)) std::tie(o.port_first, o.port_last) = *range;
}

using O = Options;  // rows stay on few lines
constexpr Setting table[] = {
    {"RONDO_CONNECT_DEADLINE", nullptr,
     [](O& o, const char* n) {
       take(o.connect_deadline, n, seconds_variable, default_connect_deadline);
     },
     [](const O& o) { return show_time(o.connect_deadline, default_connect_deadline); }},
    {"RONDO_DEADLINE", nullptr,
     [](O& o, const char* n) { take(o.deadline, n, seconds_variable, default_deadline); },
     [](const O& o) { return show_time(o.deadline, default_deadline); }},
    {"RONDO_TRANSPORT", "any", [](O& o, const char* n) { take(o.transports, n, list_variable); },
     show_transports},
    {"RONDO_INTERFACE", nullptr,
     [](O& o, const char* n) {
       // One filter, not one for each comma: a ^ before the list belongs to all of it.
       if (auto value = variable(n); value && o.interfaces.empty()) o.interfaces = {*value};
     },
     [](const O& o) { return show_list(o.interfaces); }},
    {"RONDO_CONNECTIONS", nullptr,
     [](O& o, const char* n) {
       take(
           o.connections, n, [](const char* v) { return small_variable(v, 1, 16); }, 1);
     },
     [](const O& o) { return show_number(static_cast<std::size_t>(o.connections), 1); }},
    {"RONDO_RDMA_DEVICES", nullptr,
     [](O& o, const char* n) {
       if (auto value = variable(n); value && o.rdma_devices.empty()) o.rdma_devices = {*value};
     },
     [](const O& o) { return show_list(o.rdma_devices); }},
    {"RONDO_RDMA_GID_INDEX", nullptr,
     [](O& o, const char* n) { take_from_zero(o.rdma_gid_index, n, 255); },
     [](const O& o) { return show_from_zero(o.rdma_gid_index); }},
    {"RONDO_RDMA_GRANTS", nullptr,
     [](O& o, const char* n) {
       if (!o.rdma_grants) o.rdma_grants = switch_variable(n);
     },
     [](const O& o) { return std::string(o.rdma_grants.value_or(true) ? "" : "0"); }},
    {"RONDO_RDMA_TRAFFIC_CLASS", nullptr,
     [](O& o, const char* n) { take_from_zero(o.rdma_traffic_class, n, 255); },
     [](const O& o) { return show_from_zero(o.rdma_traffic_class); }},
    {"RONDO_RDMA_SERVICE_LEVEL", nullptr,
     [](O& o, const char* n) { take_from_zero(o.rdma_service_level, n, 15); },
     [](const O& o) { return show_from_zero(o.rdma_service_level); }},
    {"RONDO_PORT_RANGE", nullptr, take_ports,
     [](const O& o) {
       return o.port_first == 0 ? std::string() : fmt::format("{}-{}", o.port_first, o.port_last);
     }},
    {"RONDO_ALGORITHM", "the planner's choice",
     [](O& o, const char* n) { take(o.algorithm, n, variable); },
     [](const O& o) { return o.algorithm; }},
    {"RONDO_HOST", nullptr, [](O& o, const char* n) { take(o.host, n, variable); },
     [](const O& o) { return o.host; }},
    {"RONDO_RANKS_ON_HOST", nullptr,
     [](O& o, const char* n) {
       take(o.ranks_on_host, n, [](const char* v) { return small_variable(v, 1, most_on_host); });
     },
     [](const O& o) { return show_number(static_cast<std::size_t>(o.ranks_on_host), 0); }},
    {"RONDO_SEGMENT_BYTES", "the planner's choice",
     [](O& o, const char* n) { take(o.segment_bytes, n, bytes_variable); },
     [](const O& o) { return show_number(o.segment_bytes, 0); }},
    {"RONDO_DEPTH", "the planner's choice",
     [](O& o, const char* n) {
       take(o.depth, n, [](const char* v) { return small_variable(v, 1, 1024); });
     },
     [](const O& o) { return show_number(static_cast<std::size_t>(o.depth), 0); }},
    {"RONDO_CONSTANTS", nullptr, [](O& o, const char* n) { take(o.constants, n, variable); },
     [](const O& o) { return o.constants; }},
    {"RONDO_MEASURE", nullptr,
     [](O& o, const char* n) {
       if (!o.measure) o.measure = switch_variable(n);
     },
     [](const O& o) {
       return std::string(!o.measure ? "" : *o.measure ? "1" : "0");
     }},
    {"RONDO_METRICS", nullptr, [](O& o, const char* n) { take(o.metrics, n, variable); },
     [](const O& o) { return o.metrics; }},
    {"RONDO_METRICS_PERIOD", nullptr,
     [](O& o, const char* n) {
       take(o.metrics_period, n, seconds_variable, default_metrics_period);
     },
     [](const O& o) { return show_time(o.metrics_period, default_metrics_period); }},
    {"RONDO_METRICS_LABELS", nullptr,
     [](O& o, const char* n) { take(o.metrics_labels, n, list_variable); },
     [](const O& o) { return show_list(o.metrics_labels); }},
    {"RONDO_STAGING_BYTES", "16777216",
     [](O& o, const char* n) { take(o.staging_bytes, n, bytes_variable, default_staging_bytes); },
     [](const O& o) { return show_number(o.staging_bytes, default_staging_bytes); }},
    {"RONDO_REPRODUCIBLE", "0", [](O& o, const char* n) { take_switch(o.reproducible, n); },
     [](const O& o) { return show_switch(o.reproducible); }},
    {"RONDO_CHECKSUM", "0", [](O& o, const char* n) { take_switch(o.checksum, n); },
     [](const O& o) { return show_switch(o.checksum); }},
};

// Text from a peer is shown on terminals.
bool is_printable(std::string_view text) {
  return std::ranges::all_of(text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; });
}

std::string value_of(const Settings& settings, std::string_view variable,
                     std::string_view otherwise) {
  for (const auto& [name, value] : settings)
    if (name == variable) return value;
  return std::string(otherwise);
}

// Returns "RONDO_ALGORITHM: ring on rank 0, doubling on ranks 1, 2", in the order of the ranks;
// empty if all ranks have the same value.
std::string differences(std::span<const Settings> by_rank, const Setting& setting) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  std::map<std::string, std::size_t> found;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    std::string value = value_of(by_rank[rank], setting.variable, setting.otherwise);
    const auto [at, fresh] = found.try_emplace(value, groups.size());
    if (fresh) groups.emplace_back(std::move(value), std::vector<int>{});
    groups[at->second].second.push_back(static_cast<int>(rank));
  }
  if (groups.size() < 2) return {};
  std::string text = fmt::format("{}: ", setting.variable);
  for (const auto& [value, ranks] : groups)
    text += fmt::format("{}{} on {}", text.ends_with(": ") ? "" : ", ", value,
                        base::list_of_ranks(ranks));
  return text;
}

}  // namespace

void fill_from_environment(Options& options) {
  std::optional<Error> first;
  for (auto& [name, time] : {std::pair<const char*, std::chrono::milliseconds&>{
                                 "connect_deadline", options.connect_deadline},
                             {"deadline", options.deadline}}) {
    if (time.count() >= 0) continue;
    if (!first)
      first.emplace(Errc::invalid_argument,
                    fmt::format("{} is {} ms, it must be more than 0", name, time.count()));
    time = std::chrono::milliseconds{0};
  }
  for (const Setting& setting : table) {
    try {
      setting.take(options, setting.variable);
    } catch (const Error& error) {
      if (!first) first = error;
    }
  }
  if (options.connect_deadline.count() == 0) options.connect_deadline = default_connect_deadline;
  if (first) throw Error(*first);
}

Options with_environment(Options options) {
  fill_from_environment(options);
  return options;
}

base::Protection protection_of(const Options& options) {
  const char* const name = options.integrity.empty() ? "RONDO_INTEGRITY" : "Options::integrity";
  const std::string value =
      options.integrity.empty() ? variable(name).value_or("headers") : options.integrity;
  if (value == "headers") return base::Protection::headers;
  if (value != "payload") refuse_variable(name, value, "it must be headers or payload");
  return base::Protection::payload;
}

engine::WaitMode wait_mode_of(const Options& options) {
  const char* const name = options.wait.empty() ? "RONDO_WAIT" : "Options::wait";
  const std::string value = options.wait.empty() ? variable(name).value_or("auto") : options.wait;
  if (value == "auto") return engine::WaitMode::automatic;
  if (value == "spin") return engine::WaitMode::spin;
  if (value != "sleep") refuse_variable(name, value, "it must be auto, spin or sleep");
  return engine::WaitMode::sleep;
}

Settings settings_in_force(const Options& options) {
  Settings settings;
  for (const Setting& setting : table)
    if (std::string value = setting.show(options); !value.empty())
      settings.emplace_back(setting.variable, std::move(value));
  return settings;
}

Settings shared_settings(const Options& options) {
  Settings settings;
  for (const Setting& setting : table)
    if (std::string value = setting.otherwise ? setting.show(options) : std::string();
        !value.empty())
      settings.emplace_back(setting.variable, value.substr(0, longest_value));
  return settings;
}

void put_settings(base::Writer& writer, const Settings& settings) {
  writer.put(static_cast<std::uint8_t>(settings.size()));
  for (const auto& [variable, value] : settings) {
    writer.put_string(variable);
    writer.put_string(value);
  }
}

Settings get_settings(base::Reader& reader) {
  Settings settings;
  const int count = reader.get<std::uint8_t>();
  for (int i = 0; i < count && reader.ok(); ++i) {
    std::string variable = reader.get_string(longest_variable);
    std::string value = reader.get_string(longest_value);
    if (!is_printable(value)) value = "(a text that cannot be shown)";
    settings.emplace_back(std::move(variable), std::move(value));
  }
  return settings;
}

void compare_settings(std::span<const Settings> by_rank) {
  std::string all;
  for (const Setting& setting : table)
    if (std::string one = setting.otherwise ? differences(by_rank, setting) : std::string();
        !one.empty())
      all += (all.empty() ? "" : "; ") + one;
  if (!all.empty())
    throw Error(Errc::mismatch, "the ranks have different settings: " + all +
                                    ". Set the same on all ranks, in the variable or in Options");
}

std::vector<std::string_view> variables_of_settings() {
  std::vector<std::string_view> names;
  for (const Setting& setting : table) names.emplace_back(setting.variable);
  return names;
}

}  // namespace rondo::settings
