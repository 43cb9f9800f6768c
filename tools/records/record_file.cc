// SPDX-License-Identifier: Apache-2.0
#include "tools/records/record_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "tools/shared/output.h"
#include "tools/shared/text.h"

namespace rondo::tools {

namespace {

// "  "name": value,\n" for each.
std::string members_of(const Json& object) {
  std::string text;
  for (const auto& [name, value] : object.items())
    text += fmt::format("  {}: {},\n", write_line(name), write_line(value));
  return text;
}

std::string csv_end(std::string_view missing) {
  if (missing.empty()) return {};
  std::string line = fmt::format("# incomplete: {}", missing);
  std::ranges::replace(line, '\n', ' ');
  return line + "\n";
}

std::string csv_value(const Json& row, const Json& head, const std::string& column) {
  const Json& object = row.contains(column) ? row : head;
  const auto found = object.find(column);
  if (found == object.end() || found->is_null()) return {};
  std::string text = found->is_string() ? found->get<std::string>() : write_line(*found);
  std::ranges::replace_if(
      text, [](char c) { return c == ',' || c == '\n' || c == '"'; }, ' ');
  return text;
}

}  // namespace

RecordFile::RecordFile(const std::string& json, const std::string& csv, const std::string& jsonl) {
  if (!json.empty()) json_.emplace(Document{ResultFile("--json", json), {}});
  if (!csv.empty()) csv_.emplace(Document{ResultFile("--csv", csv), {}});
  if (!jsonl.empty()) lines_.emplace("--jsonl", jsonl);
}

void RecordFile::begin(Json head, std::vector<std::string> columns) {
  begun_ = true;
  head_ = std::move(head);
  columns_ = std::move(columns);
  if (json_) json_->text = fmt::format("{{\n{}  \"results\": [", members_of(head_));
  if (csv_) csv_->text = join(columns_, ",") + "\n";
  if (lines_) lines_->add(write_line(head_));
}

void RecordFile::add(const Json& row) {
  if (lines_) lines_->add(write_line(row));
  if (json_) json_->text += fmt::format("{}\n    {}", first_ ? "" : ",", write_line(row));
  first_ = false;
  if (!csv_) return;
  for (std::size_t i = 0; i < columns_.size(); ++i)
    csv_->text += (i == 0 ? "" : ",") + csv_value(row, head_, columns_[i]);
  csv_->text += '\n';
}

void RecordFile::set_tail(const Json& tail) {
  tail_ = members_of(tail);
  if (lines_) try {
      lines_->add(write_line(tail));
    } catch (const std::exception& error) {
      say("rondo bench: {}\n", error.what());
    }
}

void RecordFile::update(std::optional<Document>& document, std::string_view end, bool last) {
  if (!document || document->ended) return;
  document->file.update(document->text, end, last);
  document->ended = last;
}

// Writes the second file also when the first one fails. Throws the first failure. If both fail, it
// says the second one here.
void RecordFile::write(std::string_view missing, bool last) {
  std::exception_ptr lost;
  const std::string end =
      missing.empty() ? fmt::format("\n  ],\n{}  \"complete\": true\n}}\n", tail_)
                      : fmt::format("\n  ],\n{}  \"complete\": false,\n  \"error\": {}\n}}\n",
                                    tail_, write_line(std::string(missing)));
  try {
    update(json_, end, last);
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

void RecordFile::store() {
  write("the benchmark has not ended", false);
}

void RecordFile::finish() {
  write({}, true);
}

void RecordFile::fail(std::string_view why) noexcept {
  if (!std::exchange(begun_, false)) return;
  try {
    write(why, true);
  } catch (const std::exception& error) {
    say_text("rondo bench: the results so far: ");
    say_text(error.what());
    say_text("\n");
  }
}

}  // namespace rondo::tools
