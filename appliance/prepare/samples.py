"""Texts on which two tokenizers are compared: what offices and workshops send a model."""

ENGLISH = """\
Dear colleagues, the pump in hall three was replaced on Tuesday, and since then the pressure has
stayed between 4.1 and 4.3 bar. Please write down any reading outside these limits, together with
the time and the machine's number, and tell the night shift. The supplier has promised spare seals
within ten working days; until they arrive we run at reduced speed. If you hear unusual noises or
notice oil near the coupling, stop the machine, close the valve and call maintenance at once.
Nobody is to bypass the safety switch, however short the job. Thank you for your care.
"""

CHINESE = """\
各位同事，三号车间的水泵已于星期二更换，此后压力一直保持在四点一至四点三巴之间。如果发现读数超出这个范围，
请记录时间和机器编号，并通知夜班人员。供应商承诺十个工作日内交付备用密封件，在此之前我们降低转速运行。
如果听到异常声音，或者在联轴器附近看到油迹，请立即停机、关闭阀门并联系维修人员。
任何人都不得绕过安全开关，无论工作多么短暂。谢谢大家的配合。
"""

CODE = '''\
def readings_outside(rows, low=4.1, high=4.3):
    """Yield (time, machine, bar) of every reading that is out of bounds."""
    for number, row in enumerate(rows, start=1):
        try:
            machine, bar = row["machine"], float(row["bar"])
        except (KeyError, ValueError) as error:
            raise ValueError(f"row {number}: {error}") from error
        if not low <= bar <= high:
            yield row["time"], machine, bar


if __name__ == "__main__":
    import csv, sys

    for time, machine, bar in readings_outside(csv.DictReader(sys.stdin)):
        print(f"{time}\\t{machine:>8}\\t{bar:.2f} bar")
'''

GERMAN = """\
Liebe Kolleginnen und Kollegen, die Pumpe in Halle drei wurde am Dienstag ausgetauscht, seither
liegt der Druck zwischen 4,1 und 4,3 bar. Bitte schreibt jeden Messwert außerhalb dieser Grenzen mit
Uhrzeit und Maschinennummer auf und sagt der Nachtschicht Bescheid. Der Lieferant hat Dichtungen
innerhalb von zehn Arbeitstagen zugesagt; bis dahin fahren wir mit verringerter Drehzahl.
"""

DATA = """\
{"line": 3, "shift": "night", "readings": [{"time": "2025-03-04T22:15:00Z", "machine": "P-0317",
"bar": 4.27, "ok": true}, {"time": "2025-03-04T22:30:00Z", "machine": "P-0317", "bar": 4.41,
"ok": false}], "note": null}
"""

SAMPLES = {
    "English": ENGLISH,
    "Chinese": CHINESE,
    "German": GERMAN,
    "code": CODE,
    "JSON": DATA,
}
