// SPDX-License-Identifier: Apache-2.0
//
// The file is JSON: {"rondo_constants": 1, "host": {"latency_s", "seconds_per_byte", "frame_s"},
// "network": {likewise}, "reduce_seconds_per_byte"}. Every key must be there, and no others.
#include "lib/wire/constants.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>

#include <rondo/error.h>

namespace rondo {

namespace {

using nlohmann::json;

constexpr std::size_t most_file_bytes = 65536;

struct Field {
  const char *group, *name;  // group: null at the top
  double PlanConstants::*top;
  PlanLinkCosts PlanConstants::*link;
  double PlanLinkCosts::*member;
  double least, most;

  double& of(PlanConstants& c) const { return link == nullptr ? c.*top : c.*link.*member; }
  double of(const PlanConstants& c) const { return link == nullptr ? c.*top : c.*link.*member; }
  std::string path() const { return group == nullptr ? name : fmt::format("{}.{}", group, name); }
};

constexpr Field link_field(const char* group, PlanLinkCosts PlanConstants::*link, const char* name,
                           double PlanLinkCosts::*member, double most) {
  return {group, name, nullptr, link, member, 0, most};
}
constexpr std::array<Field, 7> fields{
    link_field("host", &PlanConstants::host, "latency_s", &PlanLinkCosts::latency_s, 10),
    link_field("host", &PlanConstants::host, "seconds_per_byte", &PlanLinkCosts::seconds_per_byte,
               1e-3),
    link_field("host", &PlanConstants::host, "frame_s", &PlanLinkCosts::frame_s, 1),
    link_field("network", &PlanConstants::network, "latency_s", &PlanLinkCosts::latency_s, 10),
    link_field("network", &PlanConstants::network, "seconds_per_byte",
               &PlanLinkCosts::seconds_per_byte, 1e-3),
    link_field("network", &PlanConstants::network, "frame_s", &PlanLinkCosts::frame_s, 1),
    Field{nullptr, "reduce_seconds_per_byte", &PlanConstants::reduce_seconds_per_byte, nullptr,
          nullptr, 0, 1e-3}};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw Error(Errc::invalid_argument,
              fmt::format("the constants in {} cannot be used: {}", path, why));
}

std::string read_file(const std::string& path) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "r"), std::fclose);
  if (!file) refuse(path, std::generic_category().message(errno));
  std::string text(most_file_bytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) refuse(path, std::generic_category().message(errno));
  if (text.size() > most_file_bytes)
    refuse(path, fmt::format("it has more than {} bytes", most_file_bytes));
  return text;
}

const json& member(const std::string& path, const json& object, const char* group,
                   const char* name) {
  const std::string shown = group == nullptr ? name : fmt::format("{}.{}", group, name);
  if (!object.is_object() || !object.contains(name))
    refuse(path, fmt::format("{} is missing", shown));
  return object[name];
}

PlanConstants parse(const std::string& path, const json& all) {
  const json& version = member(path, all, nullptr, "rondo_constants");
  if (version != 1)
    refuse(path, fmt::format("rondo_constants is {}, this version reads 1", version.dump()));
  PlanConstants constants;
  for (const Field& f : fields) {
    const json& object = f.group == nullptr ? all : member(path, all, nullptr, f.group);
    const json& value = member(path, object, f.group, f.name);
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    if (!(number >= f.least && number <= f.most))
      refuse(path, fmt::format("{} is {}; possible are numbers from {:g} to {:g}", f.path(),
                               value.dump(), f.least, f.most));
    f.of(constants) = number;
  }
  const std::size_t known[] = {4, 3, 3};
  const json* const objects[] = {&all, &all["host"], &all["network"]};
  for (int i = 0; i < 3; ++i)
    if (objects[i]->size() != known[i]) refuse(path, "it has keys that this version does not know");
  return constants;
}

}  // namespace

bool wire::is_sane(const PlanConstants& constants) noexcept {
  return std::all_of(fields.begin(), fields.end(), [&](const Field& f) {
    const double value = f.of(constants);
    return value >= f.least && value <= f.most;
  });
}

PlanConstants wire::make_sane(const PlanConstants& constants) noexcept {
  PlanConstants sane = constants;
  for (const Field& f : fields) {
    double& value = f.of(sane);
    value = value >= f.least ? std::min(value, f.most) : f.least;
  }
  return sane;
}

void wire::put_constants(base::Writer& writer, const PlanConstants& constants) {
  for (const Field& f : fields) writer.put(std::bit_cast<std::uint64_t>(f.of(constants)));
}

PlanConstants wire::get_constants(base::Reader& reader) noexcept {
  PlanConstants constants;
  for (const Field& f : fields)
    f.of(constants) = std::bit_cast<double>(reader.get<std::uint64_t>());
  return constants;
}

PlanConstants default_constants() noexcept {
  return {};
}

PlanConstants read_constants(const std::string& path) {
  const json all = json::parse(read_file(path), nullptr, false);
  if (all.is_discarded()) refuse(path, "it is not JSON");
  return parse(path, all);
}

std::string format_constants(const PlanConstants& constants) {
  json all = {{"rondo_constants", 1}};
  for (const Field& f : fields) (f.group == nullptr ? all : all[f.group])[f.name] = f.of(constants);
  return all.dump(2) + "\n";
}

}  // namespace rondo
