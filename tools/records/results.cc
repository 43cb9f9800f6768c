// SPDX-License-Identifier: Apache-2.0
#include "tools/records/results.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <exception>

#include "tools/output.h"

namespace rondo::tools {
namespace {

using Json = nlohmann::ordered_json;

// Writes a value on one line. Bytes of a message that are not UTF-8 are replaced.
std::string one_line(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_end(std::string_view missing) {
  if (missing.empty()) return "\n  ],\n  \"complete\": true\n}\n";
  return fmt::format("\n  ],\n  \"complete\": false,\n  \"error\": {}\n}}\n",
                     one_line(std::string(missing)));
}

std::string csv_end(std::string_view missing) {
  if (missing.empty()) return {};
  std::string line = fmt::format("# incomplete: {}", missing);
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line + "\n";
}

std::string json_row(const Setting& setting, const Row& row) {
  Json json{{"bytes", row.bytes},
            {"count", row.count},
            {"type", name_of(row.type)},
            {"op", op_name(setting, row)},
            {"in_place", row.in_place},
            {"algorithm", row.algorithm},
            {"min_us", row.time.min_us},
            {"p50_us", row.time.p50_us},
            {"p99_us", row.time.p99_us},
            {"algbw", row.algbw},
            {"busbw", row.busbw},
            {"wrong", row.wrong},
            {"ceiling", row.ceiling},
            {"ceiling_of", name_of(ceiling_of(setting, row))},
            {"ceiling_percent", percent_of_ceiling(setting, row)}};
  if (row.latency) {
    json["latency_min_us"] = row.latency->min_us;
    json["latency_p50_us"] = row.latency->p50_us;
    json["latency_p99_us"] = row.latency->p99_us;
  }
  return one_line(json);
}

// The columns of the GPU, which follow those of the setting.
std::string csv_gpu(const Setting& setting) {
  if (setting.gpu == nullptr) return {};
  std::string name = setting.gpu->info.name;
  std::replace(name.begin(), name.end(), ',', ' ');
  return fmt::format("cuda,{},{},{:.3f},{:.3f},", name, gpu_staging(setting), setting.gpu->to_gpu,
                     setting.gpu->to_host);
}

std::string json_gpu(const Setting& setting) {
  if (setting.gpu == nullptr) return {};
  return fmt::format(
      "  \"device\": \"cuda\",\n  \"device_name\": {},\n  \"staging\": \"{}\",\n"
      "  \"copy_to_gpu\": {:.3f},\n  \"copy_to_host\": {:.3f},\n",
      one_line(setting.gpu->info.name), gpu_staging(setting), setting.gpu->to_gpu,
      setting.gpu->to_host);
}

std::string csv_row(const Setting& setting, const Row& row) {
  std::string latency;
  if (row.latency)
    latency = fmt::format(",{:.3f},{:.3f},{:.3f}", row.latency->min_us, row.latency->p50_us,
                          row.latency->p99_us);
  return fmt::format(
      "{},{},{},{},{},{},{}{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{:.6f},{:.6f},{},{:.6f},{},{:.2f}"
      "{}\n",
      name_of(setting.operation), setting.transport, setting.ranks, name_of(setting.bound),
      setting.in_a_row, setting.fresh, csv_gpu(setting), row.bytes, row.count, name_of(row.type),
      op_name(setting, row), row.in_place, row.algorithm, row.time.min_us, row.time.p50_us,
      row.time.p99_us, row.algbw, row.busbw, row.wrong, row.ceiling,
      name_of(ceiling_of(setting, row)), percent_of_ceiling(setting, row), latency);
}

// What in_a_row is called in the files.
std::string_view calls_name(const Setting& setting) {
  return setting.one_way() ? "window" : "agg_iters";
}

}  // namespace

Results::Results(const std::string& json, const std::string& csv) {
  if (!json.empty()) json_.emplace(Document{ResultFile("--json", json), {}});
  if (!csv.empty()) csv_.emplace(Document{ResultFile("--csv", csv), {}});
}

void Results::begin(const Setting& setting) {
  begun_ = true;
  if (json_)
    json_->text = fmt::format(
        "{{\n  \"operation\": \"{}\",\n  \"transport\": {},\n  \"ranks\": {},\n"
        "  \"binding\": \"{}\",\n  \"processors\": \"{}\",\n  \"{}\": {},\n"
        "  \"fresh\": {},\n{}  \"results\": [",
        name_of(setting.operation), one_line(setting.transport), setting.ranks,
        name_of(setting.bound), base::describe_processors(setting.processors), calls_name(setting),
        setting.in_a_row, setting.fresh, json_gpu(setting));
  if (csv_)
    csv_->text = fmt::format(
        "operation,transport,ranks,binding,{},fresh,{}bytes,count,type,op,in_place,algorithm,min_"
        "us,"
        "p50_us,p99_us,algbw,busbw,wrong,ceiling,ceiling_of,ceiling_percent{}\n",
        calls_name(setting),
        setting.gpu != nullptr ? "device,device_name,staging,copy_to_gpu,copy_to_host," : "",
        setting.one_way() ? ",latency_min_us,latency_p50_us,latency_p99_us" : "");
}

void Results::add(const Setting& setting, const Row& row) {
  if (json_) json_->text += fmt::format("{}\n    {}", first_ ? "" : ",", json_row(setting, row));
  if (csv_) csv_->text += csv_row(setting, row);
  first_ = false;
}

void Results::update(std::optional<Document>& document, std::string_view end, bool last) {
  if (!document || document->ended) return;
  document->file.update(document->text, end, last);
  document->ended = last;
}

// Writes the second file also when the first one fails. Throws the first failure. If both fail, it
// says the second one here.
void Results::write(std::string_view missing, bool last) {
  std::exception_ptr lost;
  try {
    update(json_, json_end(missing), last);
  } catch (const std::exception&) {
    lost = std::current_exception();
  }
  try {
    update(csv_, csv_end(missing), last);
  } catch (const std::exception& error) {
    if (!lost) throw;
    say("rondo bench: {}\n", error.what());
  }
  if (lost) std::rethrow_exception(lost);
}

void Results::store() {
  write("the benchmark has not ended", false);
}

void Results::finish() {
  write({}, true);
}

void Results::fail(std::string_view why) noexcept {
  if (!begun_) return;
  try {
    write(why, true);
  } catch (const std::exception& error) {
    say_text("rondo bench: the results so far: ");
    say_text(error.what());
    say_text("\n");
  }
}

}  // namespace rondo::tools
