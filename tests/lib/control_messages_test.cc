// SPDX-License-Identifier: Apache-2.0
#include "lib/wire/messages.h"

#include "base/bytes.h"
#include "catch.h"

using namespace rondo;

namespace {

std::pair<std::uint16_t, std::span<const std::byte>> parts(const std::vector<std::byte>& frame) {
  base::Reader reader(frame);
  const std::size_t length = reader.get<std::uint32_t>();
  const auto type = reader.get<std::uint16_t>();
  REQUIRE(length + 8 == frame.size());
  return {type, std::span(frame).subspan(8)};
}

operation::RankStatus some_status() {
  operation::RankStatus status;
  status.lanes[0] = {41, 40, "all_reduce #41", "all_reduce #40", {1, 5}};
  status.lanes[1] = {7, 7, "", "barrier #7", {}, "metrics", 12'000'000'000u};
  status.messages = {0, 0, "send #3 (8 f32 to rank 1, tag 7)", "", {1}, "", 1};
  return status;
}

std::vector<wire::ControlMessage> all_messages() {
  return {wire::RecordMessage{500, transports::Blob(3, std::byte{9})},
          wire::MembersMessage{0x1122334455667788u, 64},
          wire::MemberMessage{63, {}},
          wire::RefusalMessage{{Errc::rendezvous, "twice"}},
          wire::ReportMessage{{Errc::peer_lost, "lost", 3}},
          wire::ReportMessage{{Errc::mismatch, "nobody is lost"}},
          wire::AloneMessage{{Errc::deadline_exceeded, "rank 0 does not answer"}},
          wire::DeadlineMessage{Priority::urgent, 41, 5'000'000'000u, "what"},
          wire::DeadlineMessage{Priority::bulk, 41, 10'000'000'000u, "", true},
          wire::StatusMessage{17, some_status()},
          wire::LeavingMessage{{1, 2}},
          wire::VerdictMessage{{Errc::mismatch, "why"}},
          wire::VerdictMessage{{Errc::mismatch, "why", -1, {1, 5}, 2, "tcp 10.0.0.7:41022"}},
          wire::QueryMessage{17},
          wire::LeftMessage{3, {1, 2}},
          wire::ConstantsMessage{},
          wire::UnableMessage{{Errc::system, "too many open files"}},
          wire::ReadyMessage{},
          wire::GoMessage{}};
}

}  // namespace

TEST_CASE("control messages survive the wire", "[control]") {
  for (const wire::ControlMessage& message : all_messages()) {
    const auto frame = wire::encode(message);
    const auto [type, payload] = parts(frame);
    const auto back = wire::decode(type, payload);
    REQUIRE(back);
    CHECK(back->index() == message.index());
    CHECK(wire::encode(*back) == frame);
  }
}

TEST_CASE("cut and stretched control messages are refused", "[control]") {
  for (const wire::ControlMessage& message : all_messages()) {
    const auto frame = wire::encode(message);
    const auto [type, payload] = parts(frame);
    // A record is everything after the fixed part, so only the fixed part can be too short.
    const bool blob = std::holds_alternative<wire::RecordMessage>(message) ||
                      std::holds_alternative<wire::MemberMessage>(message);
    const std::size_t fixed = std::holds_alternative<wire::RecordMessage>(message) ? 8 : 4;
    for (std::size_t bytes = 0; bytes < (blob ? fixed : payload.size()); ++bytes)
      CHECK_FALSE(wire::decode(type, payload.first(bytes)));
    std::vector<std::byte> longer(payload.begin(), payload.end());
    longer.resize(blob ? wire::most_record_bytes + 9 : longer.size() + 1);
    CHECK_FALSE(wire::decode(type, longer));
  }
  for (const std::uint16_t type : {0, 6, 15, 27, 65535}) CHECK_FALSE(wire::decode(type, {}));
}

TEST_CASE("texts are bounded and of one line", "[control]") {
  std::string umlauts(1, 'x');
  for (int i = 0; i < 5000; ++i) umlauts += "\xc3\xa4";
  const auto frame = wire::encode(wire::ReportMessage{{Errc::aborted, umlauts}});
  auto [type, payload] = parts(frame);
  auto back = wire::decode(type, payload);
  REQUIRE(back);
  CHECK(std::get<wire::ReportMessage>(*back).failure.cause == umlauts.substr(0, 4095));

  const auto ugly = wire::encode(wire::ReportMessage{{Errc::aborted, "a\nb\x1b[2Jc"}});
  std::tie(type, payload) = parts(ugly);
  CHECK(std::get<wire::ReportMessage>(*wire::decode(type, payload)).failure.cause == "a b [2Jc");
}

TEST_CASE("a cause comes with its ranks and its link, which are bounded", "[control]") {
  const auto received = []<class Message>(const Message& message) {
    const auto frame = wire::encode(message);
    const auto [type, payload] = parts(frame);
    return std::get<Message>(wire::decode(type, payload).value()).failure;
  };
  operation::Failure sent{Errc::peer_lost, "why", 3, {1, 5}, 2, "tcp 10.0.0.7:41022"};
  for (const auto& failure :
       {received(wire::ReportMessage{sent}), received(wire::AloneMessage{sent}),
        received(wire::VerdictMessage{sent})}) {
    CHECK(failure.lost == 3);
    CHECK(failure.culprits == std::vector<int>{1, 5});
    CHECK(failure.seen_by == 2);
    CHECK(failure.link == "tcp 10.0.0.7:41022");
  }
  CHECK(received(wire::RefusalMessage{sent}).culprits.empty());

  sent.culprits.assign(1000, 7);
  sent.link = "a\nb" + std::string(5000, 'x');
  const operation::Failure cut = received(wire::VerdictMessage{sent}), told = wire::as_told(sent);
  CHECK(cut.culprits == std::vector<int>(wire::most_culprits, 7));
  CHECK(cut.link == "a b" + std::string(wire::most_text_bytes - 3, 'x'));
  CHECK(told.culprits == cut.culprits);
  CHECK(told.link == cut.link);

  for (const auto& [count, culprit, seen_by] : {std::tuple(64u, 1, 0), std::tuple(65u, 1, 0),
                                                std::tuple(1u, -1, 0), std::tuple(1u, 1, -2)}) {
    base::Writer writer;
    writer.put(static_cast<std::uint32_t>(Errc::aborted));
    writer.put_string("why");
    writer.put(std::uint32_t{0xffffffff});
    writer.put(static_cast<std::uint32_t>(seen_by));
    writer.put(count);
    for (std::uint32_t i = 0; i < count; ++i) writer.put(static_cast<std::uint32_t>(culprit));
    writer.put_string("");
    CHECK(wire::decode(wire::VerdictMessage::type, writer.take()).has_value() == (count == 64));
  }
}

TEST_CASE("lists and codes from the wire are bounded", "[control]") {
  operation::RankStatus status = some_status();
  status.lanes[0].waiting_for.assign(100'000, 1);
  status.lanes[0].current.assign(10'000, 'x');
  const auto frame = wire::encode(wire::StatusMessage{1, status});
  CHECK(frame.size() <= wire::most_payload_bytes);
  const auto [type, payload] = parts(frame);
  CHECK(std::get<wire::StatusMessage>(*wire::decode(type, payload))
            .status.lanes[0]
            .waiting_for.size() == wire::most_waited_ranks);

  for (const std::uint32_t count : {2048u, 2049u}) {
    base::Writer writer;
    writer.put(std::uint64_t{1});
    for (const std::uint32_t waiting : {count, 0u, 0u}) {
      for (const std::uint64_t number : {1u, 0u}) writer.put(number);
      for (const char* const name : {"a", "b"}) writer.put_string(name);
      writer.put(waiting);
      for (std::uint32_t i = 0; i < waiting; ++i) writer.put(std::uint32_t{1});
      writer.put_string("tag");
      writer.put(std::uint64_t{0});
      writer.put_string("gpu");
    }
    CHECK(wire::decode(18, writer.take()).has_value() == (count == wire::most_waited_ranks));
  }
  for (const std::uint32_t code : {0u, 12u, 0xffffffffu}) {
    base::Writer writer;
    writer.put(code);
    writer.put_string("x");
    CHECK_FALSE(wire::decode(16, writer.take()));
  }
  for (const int number : {1, 2, 255}) {
    const auto deadline =
        wire::encode(wire::DeadlineMessage{static_cast<Priority>(number), 1, 1, "x"});
    CHECK(wire::decode(17, parts(deadline).second).has_value() == (number == 1));
  }
}
