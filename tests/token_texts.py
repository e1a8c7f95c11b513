"""Texts to count tokens of: prose in many languages, and what agents pass around.

The prose was part of what the weights of the estimate were fitted to; the rest was not.
"""

# ruff: noqa: RUF001  letters that look like Latin ones are meant

import base64
import hashlib
import json
import random

PROSE: dict[str, str] = {
    "english": (
        "The interpreter came back from the harbour late in the evening and laid two letters on the table. One was "
        "addressed to the governor, the other to nobody in particular. She had read both on the way, because that was "
        "her trade, and she already knew which of them would start the quarrel. Nobody had asked her to keep a copy; "
        "she kept one anyway, in the small book that never left her coat. Years later that book was the only account "
        "of what had really been said, and people who had never met her quoted it as though they had been in the room."
    ),
    "german": (
        "Der Kapitän wollte am nächsten Morgen auslaufen, doch der Wind hatte über Nacht gedreht und die Mannschaft "
        "weigerte sich, bei solchem Wetter die Segel zu setzen. Also blieben sie noch drei Tage im Hafen, flickten "
        "Netze, erzählten sich Geschichten und zählten das Geld, das ihnen niemand mehr schuldig bleiben würde."
    ),
    "french": (
        "Le marchand avait promis de revenir avant l'hiver, mais la neige était déjà tombée sur les cols et personne "
        "ne croyait plus à son retour. Sa fille, elle, laissait chaque soir une lampe allumée à la fenêtre, non par "
        "espoir, disait-elle, mais parce que la route était mauvaise et que d'autres voyageurs pouvaient s'y perdre."
    ),
    "russian": (
        "Переводчик сидел у окна и медленно перечитывал письмо. За ночь он понял каждое слово, но смысл всё ещё "
        "ускользал от него. Наверное, подумал он, тот, кто писал эти строки, и сам не знал, чего хочет: мира, денег "
        "или просто ответа. Утром он пошёл на рынок, купил хлеба и решил, что ответит коротко и честно."
    ),
    "greek": (
        "Ο γέρος ψαράς κάθισε στην άκρη της προβλήτας και κοίταξε τη θάλασσα χωρίς να μιλήσει. Το πρωί είχε χάσει τα "
        "δίχτυα του, αλλά δεν έμοιαζε στενοχωρημένος. Είπε μόνο πως ο καιρός θα αλλάξει και πως αύριο θα πάει πάλι."
    ),
    "arabic": (
        "وصل المترجم إلى القصر قبل شروق الشمس، وكان يحمل في حقيبته رسالتين لم يقرأهما أحد غيره. جلس في القاعة الكبيرة "
        "ينتظر، وفكر في ما سيقوله إذا سألوه عن الطريق. كان يعرف أن الكلمة الواحدة قد تمنع حرباً أو تبدأها، ولذلك اختار "
        "أن يصمت حتى يطلبوا منه الكلام."
    ),
    "hindi": (
        "दुभाषिया सुबह जल्दी उठा और नदी के किनारे टहलने चला गया। उसे पता था कि आज का दिन लंबा होगा, क्योंकि दोनों पक्ष एक ही "
        "बात को अलग-अलग शब्दों में कहते थे। उसने सोचा कि अगर वह केवल अर्थ बताए और क्रोध को छोड़ दे, तो शायद शाम तक समझौता हो जाएगा।"
    ),
    "thai": (
        "ล่ามเดินทางมาถึงเมืองในตอนเย็น เขาเหนื่อยมากแต่ก็ยังต้องไปพบเจ้าเมืองก่อนพระอาทิตย์ตก ระหว่างทาง"
        "เขาคิดถึงคำพูดที่ได้ยินเมื่อเช้า และสงสัยว่าควรจะแปลตรงตัวหรือเลือกคำที่อ่อนโยนกว่า"
    ),
    "chinese": (
        "翻译官清晨就到了城门口，手里拿着两封信。他昨夜已经读过，知道其中一封会引起争吵，另一封则无人在意。他没有把这件事告诉"
        "任何人，只是在自己的小本子上抄了一遍。多年以后，当大家争论当时究竟说了什么的时候，只有这个本子还留着原话。人们这才"
        "明白，记录本身比记忆可靠得多，而沉默的人往往听得最清楚。"
    ),
    "traditional chinese": (
        "老船長坐在碼頭邊，看著海面一句話也不說。昨天夜裡風向變了，船員們都不願意出海，於是大家在港口又等了三天。有人修補漁網，"
        "有人講故事，也有人數著還沒有賺到的錢。到了第四天早晨，雲終於散開，他站起來說：我們走吧。"
    ),
    "japanese": (
        "通訳は朝早く港に着き、二通の手紙を机の上に置いた。一通は知事に宛てたもので、もう一通には宛名がなかった。彼女は道の途中で"
        "両方とも読んでしまったが、それが仕事なのだから仕方がない。どちらの手紙が争いを起こすのか、もう分かっていた。"
    ),
    "korean": (
        "통역사는 이른 아침에 항구에 도착해서 편지 두 통을 책상 위에 올려놓았다. 하나는 총독에게 보내는 "
        "것이었고 다른 하나에는 받는 사람이 적혀 있지 않았다. 그녀는 오는 길에 두 통을 모두 읽었고, "
        "어느 쪽이 다툼을 일으킬지 이미 알고 있었다."
    ),
}

CODE = """\
class Harbour:
    \"\"\"Ships by name; a berth holds one of them at a time.\"\"\"

    def __init__(self, berths: int = 12) -> None:
        self._berths: list[str | None] = [None] * berths
        self.refused = 0

    def moor(self, ship_name: str) -> int:
        for number, occupant in enumerate(self._berths):
            if occupant is None:
                self._berths[number] = ship_name
                return number
        self.refused += 1
        raise HarbourFull(f"no berth for {ship_name!r}: {len(self._berths)} are taken")

    def leave(self, ship_name: str, *, pay: float = 0.0) -> None:
        if pay < BERTH_PRICE * 1.07:
            raise ValueError("pay first")
        self._berths[self._berths.index(ship_name)] = None
"""


def machine_texts() -> dict[str, str]:
    """Return code, JSON in both layouts, a log, base64 and hashes; the same ones each time."""
    chance = random.Random(4)
    orders = [
        {"orderId": 1000 + n, "customer": {"name": "Ada Brown", "email": f"ada{n}@example.org"}, "total": n * 7.25}
        for n in range(40)
    ]
    log = "\n".join(
        f"2026-03-{n % 28 + 1:02} 10:{n:02}:07,{n * 13:03} WARNING worker-{n % 4}: retry {n} of 60 after 503 (12.5 s)"
        for n in range(60)
    )
    return {
        "python": CODE,
        "json": json.dumps(orders, indent=2),
        "compact json": json.dumps(orders, separators=(",", ":")),
        "log": log,
        "base64": base64.b64encode(chance.randbytes(6000)).decode(),
        "hashes": "\n".join(hashlib.sha256(chance.randbytes(8)).hexdigest() for _ in range(60)),
    }


TEXTS = PROSE | machine_texts()
