"""What the board measures and drives, as it describes itself to the host."""

from firmware_bridge import messages as m

CHANNELS = (
    # name, unit, scale, offset, sigma: value = raw · scale + offset
    ("cpu_temperature", "°C", 0.01, 0.0, 0.15),
    ("inlet_temperature", "°C", 0.01, 0.0, 0.15),
    ("outlet_temperature", "°C", 0.01, 0.0, 0.15),
    ("board_temperature", "°C", 0.01, 0.0, 0.5),
    ("rail_12v", "V", 0.001, 0.0, 0.002),
    ("rail_5v", "V", 0.001, 0.0, 0.002),
    ("rail_3v3", "V", 0.001, 0.0, 0.002),
    ("current_12v", "A", 0.002, 0.0, 0.005),
    ("current_5v", "A", 0.001, 0.0, 0.005),
    ("fan0_speed", "1/min", 1.0, 0.0, 10.0),
    ("fan1_speed", "1/min", 1.0, 0.0, 10.0),
    ("fan0_duty", "1", 0.001, 0.0, 0.0),
    ("fan1_duty", "1", 0.001, 0.0, 0.0),
    ("reference", "V", 0.0001, 0.0, 0.0004),
    ("power_relay", "1", 1.0, 0.0, 0.0),
    ("button", "1", 1.0, 0.0, 0.0),
)
CPU_TEMPERATURE = 0
FAN0_SPEED = 9
FAN0_DUTY = 11
REFERENCE = 13
RELAY = 14
BUTTON = 15

OUTPUTS = (
    # name, unit, scale, safe value, highest value
    ("fan0", "1", 0.001, 700.0, 1000.0),
    ("fan1", "1", 0.001, 700.0, 1000.0),
    ("led", "1", 1.0, 0.0, 3.0),
    ("aux", "1", 1.0, 0.0, 1.0),
)
FAN0 = 0
FAN1 = 1
LED = 2
AUX = 3

DESCRIPTIONS = [m.describe(i, m.CHANNEL, row) for i, row in enumerate(CHANNELS)] + [
    m.describe(len(CHANNELS) + i, m.ACTUATOR, row) for i, row in enumerate(OUTPUTS)
]
SCHEMA = m.schema_hash(DESCRIPTIONS)
BOARD = "steelyard-pico-1"
"""The kind of board that an image must be for."""
VERSION = (1, 1, 0)
